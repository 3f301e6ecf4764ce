// Means and parameters against plain sums: nothing is lost by `none`, and no more than the formats
// say by the others; the same bits every time, whatever the threads do.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "replicas_cases.h"

namespace longhaul::replicas {
namespace {

LayoutOptions Options(std::string_view gradients, std::string_view parameters, uint32_t replicas) {
  return {.replicas = replicas,
          .gradients = ParseGradients(gradients).value(),
          .parameters = ParseParameters(parameters).value(),
          .bucket_elements = 16'384};
}

struct Result {
  Tensors means;
  std::vector<Tensors> values;
};

// Masters step by -0.1 x the mean, for `steps` steps with the same gradients.
Result Train(const std::vector<ReplicatedParameter>& parameters, const LayoutOptions& options,
             const std::vector<Tensors>& gradients, const Tensors& begin, int steps,
             size_t coding_threads = 1) {
  Result result;
  result.means = begin;
  ReplicaThreads threads(parameters, options, begin, coding_threads);
  const auto collect = Collect(&result.means);
  const Status status = threads.Run(
      1, static_cast<uint64_t>(steps),
      [&](uint32_t r, uint64_t) -> const Tensors& { return gradients[r]; },
      [&](uint32_t r, uint32_t b, std::span<const OwnPiece> own) {
        collect(r, b, own);
        for (const OwnPiece& piece : own) {
          for (size_t k = 0; k < piece.master.size(); ++k) {
            piece.master[k] -= 0.1f * piece.gradient[k];
          }
        }
      });
  EXPECT_TRUE(status.ok()) << status;
  for (uint32_t r = 0; r < options.replicas; ++r) result.values.push_back(threads.values(r));
  return result;
}

bool SameBits(const Tensors& a, const Tensors& b) {
  for (size_t k = 0; k < a.size(); ++k) {
    if (std::memcmp(a[k].data(), b[k].data(), 4 * a[k].size()) != 0) return false;
  }
  return a.size() == b.size();
}

TEST(ReplicasDense, NoneIsThePlainSumInTheOrderOfReplicas) {
  std::mt19937 random(20261125);
  for (const uint32_t replicas : {1u, 2u, 3u, 5u}) {
    const auto parameters = SomeParameters(&random);
    const auto gradients = OfReplicas(parameters, replicas, &random);
    const Tensors begin = SomeTensors(parameters, &random);
    const Result result = Train(parameters, Options("none", "fp32", replicas), gradients, begin, 1);
    for (size_t k = 0; k < parameters.size(); ++k) {
      for (size_t i = 0; i < begin[k].size(); ++i) {
        float sum = gradients[0][k][i];
        for (uint32_t r = 1; r < replicas; ++r) sum += gradients[r][k][i];
        const float mean = sum / static_cast<float>(replicas);
        ASSERT_EQ(result.means[k][i], mean) << replicas << " replicas, " << k << ", " << i;
        const float value = begin[k][i] - 0.1f * mean;
        for (uint32_t r = 0; r < replicas; ++r) ASSERT_EQ(result.values[r][k][i], value);
      }
    }
  }
}

TEST(ReplicasDense, EveryFormRepeatsToTheBitAndLeavesAllReplicasEqual) {
  std::mt19937 random(7);
  for (const char* gradients_form :
       {"none", "bf16", "sdp4bit", "sdp4bit:feedback=on", "tagc:least=1000,keep=0.05"}) {
    for (const char* parameters_form : {"fp32", "bf16", "difference4"}) {
      const auto parameters = SomeParameters(&random);
      const auto gradients = OfReplicas(parameters, 3, &random);
      const Tensors begin = SomeTensors(parameters, &random);
      const LayoutOptions options = Options(gradients_form, parameters_form, 3);
      const Result first = Train(parameters, options, gradients, begin, 4);
      const Result again = Train(parameters, options, gradients, begin, 4);
      for (uint32_t r = 0; r < 3; ++r) {
        ASSERT_TRUE(SameBits(first.values[r], first.values[0])) << gradients_form;
        ASSERT_TRUE(SameBits(first.values[r], again.values[r])) << gradients_form;
      }
      ASSERT_TRUE(SameBits(first.means, again.means));
    }
  }
}

// Pieces of several blocks, the last of them odd.
TEST(ReplicasDense, ThreadsThatAreLentChangeNoBit) {
  std::mt19937 random(11);
  const std::vector<ReplicatedParameter> parameters = {
      {.name = "w", .elements = 250'001, .may_be_sparse = true},
      {.name = "b", .elements = 77},
      {.name = "v", .elements = 90'017}};
  const auto gradients = OfReplicas(parameters, 3, &random);
  const Tensors begin = SomeTensors(parameters, &random);
  for (const auto& [gradients_form, parameters_form] :
       {std::pair{"none", "fp32"}, std::pair{"bf16", "bf16"}, std::pair{"sdp4bit", "difference4"},
        std::pair{"sdp4bit:feedback=on", "bf16"},
        std::pair{"tagc:least=1000,keep=0.05", "difference4"}}) {
    LayoutOptions options = Options(gradients_form, parameters_form, 3);
    options.bucket_elements = uint64_t{1} << 22;
    const Result alone = Train(parameters, options, gradients, begin, 3);
    const Result helped = Train(parameters, options, gradients, begin, 3, 4);
    ASSERT_TRUE(SameBits(alone.means, helped.means)) << gradients_form;
    for (uint32_t r = 0; r < 3; ++r) {
      ASSERT_TRUE(SameBits(alone.values[0], helped.values[r])) << gradients_form;
    }
    if (std::string_view(gradients_form) != "none") continue;
    for (size_t k = 0; k < parameters.size(); ++k) {
      for (size_t i = 0; i < begin[k].size(); ++i) {
        const float sum = gradients[0][k][i] + gradients[1][k][i] + gradients[2][k][i];
        ASSERT_EQ(helped.means[k][i], sum / 3.0f) << k << ", " << i;
      }
    }
  }
}

TEST(ReplicasDense, Bf16LosesItsRoundingAlone) {
  std::mt19937 random(8);
  const auto parameters = SomeParameters(&random);
  const auto gradients = OfReplicas(parameters, 4, &random);
  const Result result =
      Train(parameters, Options("bf16", "bf16", 4), gradients, SomeTensors(parameters, &random), 1);
  for (size_t k = 0; k < parameters.size(); ++k) {
    for (size_t i = 0; i < result.means[k].size(); ++i) {
      double sum = 0, size = 0;
      for (const Tensors& of : gradients) {
        sum += of[k][i];
        size += std::fabs(double{of[k][i]});
      }
      ASSERT_NEAR(result.means[k][i], sum / 4, size / 4 * 0x1p-8 + 1e-30);
    }
  }
}

// The transform keeps sums of squares but for its factor 32, and stochastic rounding errs by less
// than a step of the group, 1/7 of its largest number.
TEST(ReplicasDense, Sdp4bitIsAsCloseAsItsStepsAreAndUnbiased) {
  std::mt19937 random(9);
  const std::vector<ReplicatedParameter> parameters = {{.name = "w", .elements = 8192}};
  const auto gradients = OfReplicas(parameters, 2, &random);
  const Tensors begin = SomeTensors(parameters, &random);
  Tensors means = begin;
  constexpr int kSteps = 400;
  std::vector<double> average(8192);
  ReplicaThreads threads(parameters, Options("sdp4bit", "fp32", 2), begin);
  const auto collect = Collect(&means);
  double worst = 0;
  for (uint64_t step = 1; step <= kSteps; ++step) {
    ASSERT_TRUE(threads
                    .Run(
                        step, step,
                        [&](uint32_t r, uint64_t) -> const Tensors& { return gradients[r]; },
                        collect)
                    .ok());
    double error = 0, size = 0;
    for (size_t i = 0; i < 8192; ++i) {
      const double mean = (double{gradients[0][0][i]} + gradients[1][0][i]) / 2;
      average[i] += means[0][i] / double{kSteps};
      error += (means[0][i] - mean) * (means[0][i] - mean);
      size += mean * mean;
    }
    worst = std::max(worst, std::sqrt(error / size));
  }
  EXPECT_LT(worst, 0.25);
  EXPECT_GT(worst, 0.01);  // it is 4 bits
  double bias = 0, size = 0;
  for (size_t i = 0; i < 8192; ++i) {
    const double mean = (double{gradients[0][0][i]} + gradients[1][0][i]) / 2;
    bias += (average[i] - mean) * (average[i] - mean);
    size += mean * mean;
  }
  // The mean of 400 draws errs a twentieth as much as one.
  EXPECT_LT(std::sqrt(bias / size), 1.3 * worst / 20);
}

// What a difference of 4 bits loses comes again: values that stand still are reached.
TEST(ReplicasDense, Difference4ReachesTheMasters) {
  std::mt19937 random(10);
  const auto parameters = SomeParameters(&random);
  const auto gradients = OfReplicas(parameters, 2, &random);
  const Tensors begin = SomeTensors(parameters, &random);
  Tensors masters = begin;
  ReplicaThreads threads(parameters, Options("none", "difference4", 2), begin);
  const auto run = [&](uint64_t from, uint64_t to) {
    return threads.Run(
        from, to, [&](uint32_t r, uint64_t) -> const Tensors& { return gradients[r]; },
        [&](uint32_t, uint32_t, std::span<const OwnPiece> own) {
          for (const OwnPiece& piece : own) {
            for (size_t k = 0; k < piece.master.size(); ++k) {
              float& master = masters[piece.piece.parameter][piece.piece.first + k];
              if (from == 1) piece.master[k] -= piece.gradient[k];
              master = piece.master[k];
            }
          }
        });
  };
  const auto largest_error = [&] {
    double largest = 0;
    for (size_t k = 0; k < masters.size(); ++k) {
      for (size_t i = 0; i < masters[k].size(); ++i) {
        largest = std::max(largest, std::fabs(double{masters[k][i]} - threads.values(1)[k][i]));
      }
    }
    return largest;
  };
  ASSERT_TRUE(run(1, 1).ok());
  double before = largest_error();
  EXPECT_GT(before, 0);
  for (uint64_t step = 2; step <= 5; ++step) {
    ASSERT_TRUE(run(step, step).ok());
    const double now = largest_error();
    // Half a step of 1/7 of the largest difference, or what fp32 cannot say.
    ASSERT_LE(now, before / 13 + 1e-6) << step;
    before = now;
  }
}

TEST(ReplicasDense, NumbersThatAreNotFiniteArriveAndDoNotStay) {
  std::mt19937 random(11);
  const std::vector<ReplicatedParameter> parameters = {
      {.name = "w", .elements = 9000, .may_be_sparse = true}, {.name = "b", .elements = 10}};
  for (const char* form : {"none", "bf16", "sdp4bit:feedback=on", "tagc:least=1000,keep=0.05"}) {
    auto gradients = OfReplicas(parameters, 2, &random);
    const auto good = gradients;
    for (float& value : gradients[1][0]) {
      if (random() % 500 == 0) value = std::numeric_limits<float>::infinity();
    }
    gradients[0][1][3] = std::numeric_limits<float>::quiet_NaN();
    const Tensors begin = SomeTensors(parameters, &random);
    Tensors means = begin;
    ReplicaThreads threads(parameters, Options(form, "fp32", 2), begin);
    const auto finite = [&](size_t k) {
      return std::ranges::all_of(means[k], [](float x) { return std::isfinite(x); });
    };
    ASSERT_TRUE(threads
                    .Run(
                        1, 1, [&](uint32_t r, uint64_t) -> const Tensors& { return gradients[r]; },
                        Collect(&means))
                    .ok());
    EXPECT_FALSE(finite(0)) << form;
    EXPECT_FALSE(finite(1)) << form;
    ASSERT_TRUE(threads
                    .Run(
                        2, 2, [&](uint32_t r, uint64_t) -> const Tensors& { return good[r]; },
                        Collect(&means))
                    .ok());
    EXPECT_TRUE(finite(0) && finite(1)) << form;
    for (uint32_t r = 0; r < 2; ++r) {
      for (const StateTensor& state : threads.reducer(r).State()) {
        EXPECT_TRUE(std::ranges::all_of(state.values, [](float x) { return std::isfinite(x); }))
            << form << ", " << state.name;
      }
    }
  }
}

}  // namespace
}  // namespace longhaul::replicas
