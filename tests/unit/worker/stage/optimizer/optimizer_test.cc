// For every kind of optimizer and of its state: small models of several stages learn, and continue
// after a resume as if nothing had happened.
#include "worker/stage/optimizer/optimizer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "worker/stage/stage.h"

namespace longhaul::worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint32_t kWidth = 16, kWindow = 12;

struct Kind {
  OptimizerKind optimizer;
  MomentDtype moments;
};

StageOptions Options(const Kind& kind) {
  StageOptions options;
  options.model.layers = options.layers = 2;
  options.model.hidden = kWidth;
  options.model.heads = 2;
  options.model.context = kWindow;
  options.vocabulary = 64;
  options.train.steps = 200;
  options.train.microbatches = 1;
  options.train.microbatch_size = 2;
  options.train.optimizer.kind = kind.optimizer;
  options.train.optimizer.moments = kind.moments;
  options.train.optimizer.lr = 5e-3;
  return options;
}

// A pipeline's stages, one after the other.
class Chain {
 public:
  Chain(const StageOptions& whole, uint32_t stages) : train_(whole.train) {
    for (uint32_t s = 0; s < stages; ++s) {
      StageOptions options = whole;
      options.layers = whole.model.layers / stages;
      options.first_layer = s * options.layers;
      options.first = s == 0;
      options.last = s + 1 == stages;
      auto stage = Stage::Create(options);
      EXPECT_TRUE(stage.ok()) << stage.status();
      stages_.push_back(*std::move(stage));
    }
  }

  // The loss before the step's update.
  double Train(uint64_t step) {
    std::vector<int32_t> ids(2 * kWindow), targets(ids.size());
    for (size_t i = 0; i < ids.size(); ++i) {
      ids[i] = static_cast<int32_t>((i * i + 7 * (step % 4)) % 64);
      targets[i] = (ids[i] * 5 + 1) % 64;
    }
    std::vector<BoundaryTensor> kept;  // activations, then gradients
    codec::TensorView view;
    for (auto& stage : stages_) {
      auto output = stage->Forward(Microbatch(0), {ids, view, targets});
      EXPECT_TRUE(output.ok()) << output.status();
      if (*output) view = kept.emplace_back(*std::move(*output)).view;
    }
    const double loss = stages_.back()->Loss(Microbatch(0)).value();
    view = {};
    double sum = 0;
    for (auto stage = stages_.rbegin(); stage != stages_.rend(); ++stage) {
      auto gradient = (*stage)->Backward(Microbatch(0), view);
      EXPECT_TRUE(gradient.ok()) << gradient.status();
      if (*gradient) view = kept.emplace_back(*std::move(*gradient)).view;
      sum = (*stage)->AddSquaredGradientNorm(sum)->sum;
    }
    for (auto& stage : stages_) {
      const Status stepped =
          stage->OptimizerStep(Step(step), LearningRate(train_, Step(step)), ClipScale(1, sum));
      EXPECT_EQ(stepped, absl::OkStatus());
    }
    return loss;
  }

  // A snapshot of all stages together.
  StageSnapshot Snapshot() const {
    StageSnapshot all;
    for (const auto& stage : stages_) {
      StageSnapshot one = stage->Snapshot().value();
      all.step = one.step;
      std::move(one.parameters.begin(), one.parameters.end(), std::back_inserter(all.parameters));
      std::move(one.moments.begin(), one.moments.end(), std::back_inserter(all.moments));
    }
    return all;
  }
  void Restore(const StageSnapshot& snapshot) {
    for (auto& stage : stages_) EXPECT_EQ(stage->Restore(snapshot), absl::OkStatus());
  }
  Stage& front() { return *stages_.front(); }

 private:
  const TrainSpec train_;
  std::vector<std::unique_ptr<Stage>> stages_;
};

const NamedArray& Named(const std::vector<NamedArray>& arrays, const std::string& name) {
  for (const NamedArray& array : arrays) {
    if (array.name == name) return array;
  }
  ADD_FAILURE() << "no " << name;
  return arrays.front();
}

void ExpectSame(const StageSnapshot& one, const StageSnapshot& other) {
  ASSERT_EQ(one.parameters.size(), other.parameters.size());
  ASSERT_EQ(one.moments.size(), other.moments.size());
  for (const NamedArray& array : one.parameters) {
    EXPECT_EQ(array.values, Named(other.parameters, array.name).values) << array.name;
  }
  for (const NamedArray& array : one.moments) {
    EXPECT_EQ(array.values, Named(other.moments, array.name).values) << array.name;
  }
}

class OptimizerOf : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, OptimizerOf,
                         ::testing::Values(Kind{OptimizerKind::kAdamW, MomentDtype::kFp32},
                                           Kind{OptimizerKind::kAdamW, MomentDtype::kBf16},
                                           Kind{OptimizerKind::kMuon, MomentDtype::kFp32},
                                           Kind{OptimizerKind::kMuon, MomentDtype::kBf16}),
                         [](const auto& test) {
                           return fmt::format("{}_{}", ToString(test.param.optimizer),
                                              ToString(test.param.moments));
                         });

TEST_P(OptimizerOf, LearnsThroughTwoStagesAsThroughOne) {
  Chain one(Options(GetParam()), 1), two(Options(GetParam()), 2);
  double first = 0, last = 0;
  for (uint64_t step = 1; step <= 60; ++step) {
    last = two.Train(step);
    ASSERT_EQ(one.Train(step), last) << step;
    if (step == 1) first = last;
  }
  EXPECT_LT(last, 0.6 * first);
  ExpectSame(one.Snapshot(), two.Snapshot());
}

TEST_P(OptimizerOf, GoesOnAfterAResumeToTheBit) {
  Chain unbroken(Options(GetParam()), 2);
  for (uint64_t step = 1; step <= 5; ++step) unbroken.Train(step);
  const StageSnapshot middle = unbroken.Snapshot();
  Chain resumed(Options(GetParam()), 2);
  resumed.Train(1);  // what it had does not matter
  resumed.Restore(middle);
  for (uint64_t step = 6; step <= 10; ++step) {
    EXPECT_EQ(resumed.Train(step), unbroken.Train(step)) << step;
  }
  ExpectSame(resumed.Snapshot(), unbroken.Snapshot());
}

// Checkpoints have fp32, of which moments that are kept in bf16 use the upper half.
TEST_P(OptimizerOf, KeepsMomentsInTheTypeThatWasAskedFor) {
  Chain chain(Options(GetParam()), 1);
  const uint64_t empty = chain.front().memory_bytes();
  for (uint64_t step = 1; step <= 3; ++step) chain.Train(step);
  const StageSnapshot snapshot = chain.Snapshot();
  uint64_t of_bf16 = 0, not_zero = 0, elements = 0;
  for (const NamedArray& moment : snapshot.moments) {
    for (const float value : moment.values) {
      ++elements;
      if (value == 0) continue;
      ++not_zero;
      if ((std::bit_cast<uint32_t>(value) & 0xFFFF) == 0) ++of_bf16;
    }
  }
  const bool bf16 = GetParam().moments == MomentDtype::kBf16;
  EXPECT_GT(not_zero, elements / 2);
  if (bf16) {
    EXPECT_EQ(of_bf16, not_zero);
  } else {
    EXPECT_LT(of_bf16, not_zero / 100);
  }
  // Values, and moments of 4 or 2 bytes; gradients come and go.
  EXPECT_EQ(empty, 4 * chain.front().parameter_count() + (bf16 ? 2 : 4) * elements);
}

TEST(Moments, InBf16LearnAsInFp32) {
  for (const OptimizerKind kind : {OptimizerKind::kAdamW, OptimizerKind::kMuon}) {
    Chain exact(Options({kind, MomentDtype::kFp32}), 1);
    Chain rounded(Options({kind, MomentDtype::kBf16}), 1);
    double first = 0, with_fp32 = 0, with_bf16 = 0;
    for (uint64_t step = 1; step <= 200; ++step) {
      with_fp32 = exact.Train(step);
      with_bf16 = rounded.Train(step);
      if (step == 1) first = with_fp32;
    }
    RecordProperty(fmt::format("{}", ToString(kind)), fmt::format("{} {}", with_fp32, with_bf16));
    EXPECT_LT(with_fp32, 0.2 * first);
    EXPECT_NEAR(with_bf16, with_fp32, 0.005 * first) << ToString(kind);
  }
}

TEST(Moments, OfAnotherOptimizerAreRefusedByTheKeysName) {
  const Kind adamw{OptimizerKind::kAdamW, MomentDtype::kFp32};
  const Kind muon{OptimizerKind::kMuon, MomentDtype::kFp32};
  const auto error = [](const Kind& from, const Kind& to) {
    Chain trained(Options(from), 1), other(Options(to), 1);
    trained.Train(1);
    const Status status = other.front().Restore(trained.Snapshot());
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(other.front().steps(), 0u);
    return std::string(Message(status));
  };
  EXPECT_THAT(error(adamw, muon),
              HasSubstr("trained with train.optimizer.kind: adamw, and the run file has muon"));
  EXPECT_THAT(
      error(muon, adamw),
      AllOf(HasSubstr("trained with train.optimizer.kind: muon, and the run file has adamw"),
            HasSubstr("go on with muon")));
}

// Kept in fp32 or bf16: both are of one kind.
TEST(Moments, MayChangeTheirTypeAtAResume) {
  const Kind fp32{OptimizerKind::kAdamW, MomentDtype::kFp32};
  const Kind bf16{OptimizerKind::kAdamW, MomentDtype::kBf16};
  Chain wide(Options(fp32), 1), narrow(Options(bf16), 1);
  wide.Train(1);
  narrow.Restore(wide.Snapshot());
  narrow.Train(2);
  const StageSnapshot snapshot = narrow.Snapshot();
  wide.Restore(snapshot);
  ExpectSame(wide.Snapshot(), snapshot);
}

}  // namespace
}  // namespace longhaul::worker
