// The outer step against DiLoCo's formulas in double, alone and with replicas that exchange.
#include <gmock/gmock.h>

#include <cmath>

#include "replicas_cases.h"
#include "transport/replicas/outer_step.h"

namespace longhaul::replicas {
namespace {

TEST(OuterStep, IsNesterovsMomentum) {
  std::mt19937 random(15);
  std::normal_distribution<float> normal;
  LocalSgdOptions options{.steps = 5, .rate = 0.7, .momentum = 0.9};
  std::vector<float> anchor(500), momentum(500), gradient(500);
  std::vector<double> plain(500), plain_momentum(500);
  for (size_t k = 0; k < 500; ++k) plain[k] = anchor[k] = normal(random);
  for (int step = 0; step < 50; ++step) {
    for (float& value : gradient) value = normal(random) * 0.1f;
    NesterovStep(options, gradient, momentum, anchor);
    for (size_t k = 0; k < 500; ++k) {
      // torch.optim.SGD's Nesterov: b = mu b + g; p -= lr (g + mu b).
      plain_momentum[k] = 0.9 * plain_momentum[k] + gradient[k];
      plain[k] -= 0.7 * (gradient[k] + 0.9 * plain_momentum[k]);
    }
  }
  for (size_t k = 0; k < 500; ++k) EXPECT_NEAR(anchor[k], plain[k], 2e-5);
}

TEST(OuterStep, KnowsWhenItIsDue) {
  const std::vector<float> values(1);
  const std::vector<std::span<const float>> all = {values};
  const auto days = [&](double delay) {
    OuterStep outer({.steps = 4, .delay = delay}, all);
    std::vector<std::pair<bool, bool>> due;
    for (uint64_t step = 1; step <= 10; ++step) {
      due.emplace_back(outer.IsDue(step), outer.MergeIsDue(step));
    }
    return due;
  };
  using Due = std::vector<std::pair<bool, bool>>;
  const std::pair<bool, bool> no{false, false}, both{true, true}, take{true, false},
      merge{false, true};
  EXPECT_EQ(days(0), (Due{no, no, no, both, no, no, no, both, no, no}));
  EXPECT_EQ(days(0.5), (Due{no, no, no, take, no, merge, no, take, no, merge}));
}

// Replicas whose inner step moves each parameter by a number that depends on replica and step.
class LocalSgd {
 public:
  LocalSgd(const GradientOptions& gradients, ParameterForm parameters)
      : options_{.replicas = 3,
                 .gradients = gradients,
                 .parameters = parameters,
                 .bucket_elements = 20'000},
        parameters_(SomeParameters(&random_)),
        begin_(SomeTensors(parameters_, &random_)),
        threads_(parameters_, options_, begin_) {
    const std::vector<std::span<const float>> spans(begin_.begin(), begin_.end());
    for (uint32_t r = 0; r < 3; ++r) {
      locals_.push_back(begin_);
      outers_.emplace_back(options_.gradients.local, spans);
      plain_locals_.push_back(Doubles(begin_));
    }
    plain_anchor_ = Doubles(begin_);
    plain_momentum_ = plain_anchor_;
    for (auto& tensor : plain_momentum_) std::fill(tensor.begin(), tensor.end(), 0.0);
  }

  static float Move(uint32_t replica, uint64_t step, size_t k, size_t i) {
    return 0.001f * static_cast<float>((replica + 1) * ((step * 31 + k * 7 + i) % 11)) - 0.004f;
  }

  void RunInnerStep(uint64_t step) {
    for (uint32_t r = 0; r < 3; ++r) {
      for (size_t k = 0; k < begin_.size(); ++k) {
        for (size_t i = 0; i < begin_[k].size(); ++i) {
          locals_[r][k][i] += Move(r, step, k, i);
          plain_locals_[r][k][i] += Move(r, step, k, i);
        }
      }
    }
    if (outers_[0].IsDue(step)) Exchange(step);
    if (outers_[0].MergeIsDue(step)) Merge();
  }

  double LargestError() const {
    double largest = 0;
    for (uint32_t r = 0; r < 3; ++r) {
      for (size_t k = 0; k < begin_.size(); ++k) {
        for (size_t i = 0; i < begin_[k].size(); ++i) {
          largest = std::max(largest, std::fabs(locals_[r][k][i] - plain_locals_[r][k][i]));
        }
      }
    }
    return largest;
  }

  double RelativeError() const {
    double error = 0, way = 0;
    for (uint32_t r = 0; r < 3; ++r) {
      for (size_t k = 0; k < begin_.size(); ++k) {
        for (size_t i = 0; i < begin_[k].size(); ++i) {
          error += std::pow(locals_[r][k][i] - plain_locals_[r][k][i], 2);
          way += std::pow(plain_locals_[r][k][i] - begin_[k][i], 2);
        }
      }
    }
    return std::sqrt(error / way);
  }

 private:
  using Plain = std::vector<std::vector<double>>;
  static Plain Doubles(const Tensors& tensors) {
    Plain plain;
    for (const auto& tensor : tensors) plain.emplace_back(tensor.begin(), tensor.end());
    return plain;
  }

  void Exchange(uint64_t step) {
    std::vector<Tensors> differences(3);
    for (uint32_t r = 0; r < 3; ++r) {
      outers_[r].TakeDifferences(
          std::vector<std::span<const float>>(locals_[r].begin(), locals_[r].end()));
      for (const ParameterMemory& memory : outers_[r].memory()) {
        differences[r].emplace_back(memory.gradient.begin(), memory.gradient.end());
      }
    }
    const uint64_t number = step / options_.gradients.local.steps;
    ASSERT_TRUE(threads_
                    .Run(
                        number, number,
                        [&](uint32_t r, uint64_t) -> const Tensors& { return differences[r]; },
                        [&](uint32_t r, uint32_t b, std::span<const OwnPiece> own) {
                          outers_[r].StepMasters(b, own);
                        })
                    .ok());
    plain_taken_ = plain_locals_;
    for (size_t k = 0; k < plain_anchor_.size(); ++k) {
      for (size_t i = 0; i < plain_anchor_[k].size(); ++i) {
        double mean = 0;
        for (const Plain& local : plain_locals_) mean += (plain_anchor_[k][i] - local[k][i]) / 3;
        double& momentum = plain_momentum_[k][i];
        momentum = 0.9 * momentum + mean;
        plain_anchor_[k][i] -= 0.7 * (mean + 0.9 * momentum);
      }
    }
  }

  void Merge() {
    for (uint32_t r = 0; r < 3; ++r) {
      const std::vector<ParameterMemory> memory = outers_[r].memory();
      for (size_t k = 0; k < memory.size(); ++k) {
        std::copy(threads_.values(r)[k].begin(), threads_.values(r)[k].end(),
                  memory[k].value.begin());
      }
      outers_[r].Merge(std::vector<std::span<float>>(locals_[r].begin(), locals_[r].end()));
      for (size_t k = 0; k < begin_.size(); ++k) {
        for (size_t i = 0; i < begin_[k].size(); ++i) {
          double& local = plain_locals_[r][k][i];
          local = plain_anchor_[k][i] + (local - plain_taken_[r][k][i]);
        }
      }
    }
  }

  std::mt19937 random_{16};
  const LayoutOptions options_;
  const std::vector<ReplicatedParameter> parameters_;
  const Tensors begin_;
  ReplicaThreads threads_;
  std::vector<Tensors> locals_;
  std::vector<OuterStep> outers_;
  std::vector<Plain> plain_locals_, plain_taken_;
  Plain plain_anchor_, plain_momentum_;
};

// With numbers of fp32 in place of 4 bits: the arithmetic alone.
TEST(LocalSgdOfReplicas, FollowsTheFormulas) {
  for (const double delay : {0.0, 0.5}) {
    LocalSgd run({.local = {.steps = 10, .delay = delay}}, ParameterForm::kFp32);
    for (uint64_t step = 1; step <= 60; ++step) run.RunInnerStep(step);
    EXPECT_LT(run.LargestError(), 3e-6) << delay;
  }
}

// The error stays a small part of the way, in the root of the mean square.
TEST(LocalSgdOfReplicas, StaysCloseWithFourBits) {
  for (const char* form : {"local-sgd:steps=10,delay=0.3", "local-sgd:steps=10,feedback=off"}) {
    LocalSgd run(ParseGradients(form).value(), ParameterForm::kDifference4);
    for (uint64_t step = 1; step <= 63; ++step) run.RunInnerStep(step);
    EXPECT_LT(run.RelativeError(), 0.1) << form;
    EXPECT_GT(run.RelativeError(), 1e-4) << form;
  }
}

}  // namespace
}  // namespace longhaul::replicas
