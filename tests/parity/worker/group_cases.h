// Stages of one rank and of groups, for tests that compare them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "tests/parity/worker/small_model.h"
#include "tests/support/kin.h"
#include "worker/ranks/communicators.h"
#include "worker/stage/group/group_stage.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

// Ranks on GPUs have the ones that follow the first.
inline StatusOr<std::unique_ptr<Stage>> MakeWith(StageOptions options, uint32_t ranks,
                                                 const GroupSpec& group = {}) {
  if (ranks == 1) return Stage::Create(options);
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    options.ranks.push_back(options.device);
    if (options.device.cuda_index) *options.ranks.back().cuda_index += rank;
  }
  options.group.tensor = ranks;
  options.group.forward = group.forward;
  options.group.backward = group.backward;
  return MakeGroupStage(options, CommunicatorsFor(options));
}

enum class Part : uint8_t { kWhole, kFirst, kMiddle, kLast };

struct Case {
  std::string name;
  ModelFamily family = ModelFamily::kGpt;
  Part part = Part::kWhole;
  uint32_t ranks = 2;
  ComputeDtype dtype = ComputeDtype::kFp32;
  bool qk_norm = false, masked = false, tied = false, sequence = false;
  Recompute recompute = Recompute::kNone;
  std::optional<uint32_t> vocabulary;
  uint32_t rows = 2;
  uint32_t experts = 1;  // parts of them
  Balance balance = Balance::kLoss;
  std::string kin = {};  // of Llama (tests/support/kin.h)
};
inline void PrintTo(const Case& one, std::ostream* out) {
  *out << one.name;
}
inline std::string NameOf(const ::testing::TestParamInfo<Case>& info) {
  return info.param.name;
}

inline StageOptions OptionsOf(const Case& one) {
  StageOptions options;
  options.group.sequence = one.sequence;
  options.group.expert = one.experts;
  options.model = testing::SmallModelOf(one.family);
  options.model.balance = one.balance;
  options.model.layers = 3;
  if (one.family == ModelFamily::kMoe) options.model.experts = 8;
  options.model.qk_norm = one.qk_norm;
  options.model.tied = one.tied;
  testing::MakeKin(one.kin, &options.model);
  options.model.vocabulary = one.vocabulary;
  options.vocabulary = 251;  // divided by no number of ranks
  options.first = one.part == Part::kWhole || one.part == Part::kFirst;
  options.last = one.part == Part::kWhole || one.part == Part::kLast;
  options.layers = one.part == Part::kWhole ? 3 : 1;
  options.first_layer = one.part == Part::kMiddle ? 1 : one.part == Part::kLast ? 2 : 0;
  options.recompute = one.recompute;
  options.train.dtype = one.dtype;
  options.train.steps = 100;
  options.train.microbatches = 2;
  options.train.microbatch_size = one.rows;
  options.train.optimizer.lr = 1e-3;
  options.masked_targets = options.masked_attention = one.masked;
  return options;
}

// What a microbatch gives, and what a step leaves.
struct Computed {
  std::vector<double> losses;
  std::vector<std::vector<float>> outputs, input_gradients;
  double squared_norm = 0;
  StageSnapshot before, after;
};

inline std::vector<float> ValuesOf(const std::optional<BoundaryTensor>& tensor) {
  if (!tensor) return {};
  const float* const data = static_cast<const float*>(tensor->view.data);
  return {data, data + tensor->view.shape.elements()};
}

inline float Noise(size_t i, int salt) {
  return std::sin(static_cast<float>(i) * 0.37f + static_cast<float>(salt));
}

class Batch {
 public:
  Batch(const StageOptions& options, int salt) {
    const size_t tokens = size_t{options.train.microbatch_size} * options.model.context;
    for (size_t i = 0; i < tokens; ++i) {
      ids_.push_back(static_cast<int32_t>((i * 31 + static_cast<size_t>(salt) * 7) % 251));
      targets_.push_back(static_cast<int32_t>((i * 17 + static_cast<size_t>(salt) * 5) % 251));
      if (options.masked_targets && i % 5 == 0) targets_.back() = kNoTarget;
      documents_.push_back(static_cast<int32_t>(i % options.model.context / 20));
    }
    for (size_t i = 0; i < tokens * options.model.hidden; ++i) {
      activation_.push_back(Noise(i, salt));
      gradient_.push_back(1e-3f * Noise(i * 3, salt));
    }
    shape_ = {options.train.microbatch_size, options.model.context, options.model.hidden};
    input_ = {.tokens = ids_,
              .activation = {activation_.data(), codec::Dtype::kF32, shape_},
              .targets = targets_,
              .documents = documents_,
              .counted = options.masked_targets ? 0.8 * static_cast<double>(tokens) : 0};
  }
  const Stage::Input& input() const { return input_; }
  codec::TensorView gradient() const { return {gradient_.data(), codec::Dtype::kF32, shape_}; }

 private:
  std::vector<int32_t> ids_, targets_, documents_;
  std::vector<float> activation_, gradient_;
  codec::Shape shape_;
  Stage::Input input_;
};

inline void RunStep(Stage& stage, const StageOptions& options, uint64_t step, Computed* computed) {
  for (uint32_t m = 0; m < options.train.microbatches; ++m) {
    const Batch batch(options, static_cast<int>(10 * step + m));
    auto output = stage.Forward(Microbatch(m), batch.input());
    ASSERT_TRUE(output.ok()) << output.status();
    computed->outputs.push_back(ValuesOf(*output));
    if (options.last) computed->losses.push_back(*stage.Loss(Microbatch(m)));
    auto gradient = stage.Backward(Microbatch(m), batch.gradient());
    ASSERT_TRUE(gradient.ok()) << gradient.status();
    computed->input_gradients.push_back(ValuesOf(*gradient));
  }
  const auto norm = stage.AddSquaredGradientNorm(1);
  ASSERT_TRUE(norm.ok()) << norm.status();
  EXPECT_NEAR(norm->sum, 1 + norm->own, 1e-12 * norm->sum);
  computed->squared_norm = norm->own;
  const Status status = stage.OptimizerStep(Step(step), options.train.optimizer.lr, 1);
  ASSERT_TRUE(status.ok()) << status;
}

inline Computed OneStep(const StageOptions& options, uint32_t ranks) {
  Computed computed;
  auto stage = MakeWith(options, ranks);
  EXPECT_TRUE(stage.ok()) << stage.status();
  if (!stage.ok()) return computed;
  computed.before = (*stage)->Snapshot().value();
  RunStep(**stage, options, 1, &computed);
  computed.after = (*stage)->Snapshot().value();
  return computed;
}

// |a - b| / |b|, of vectors.
inline double RelativeError(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double difference = 0, size = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - b[i], 2);
    size += std::pow(static_cast<double>(b[i]), 2);
  }
  return size == 0 ? std::sqrt(difference) : std::sqrt(difference / size);
}

inline void ExpectSame(const std::vector<NamedArray>& a, const std::vector<NamedArray>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].name, b[i].name);
    EXPECT_EQ(a[i].shape, b[i].shape) << a[i].name;
    EXPECT_EQ(a[i].values, b[i].values) << a[i].name;
  }
}

// The losses, tensors and gradient norm of a step are those of `expected`, within `bound`.
inline void ExpectNear(const Computed& got, const Computed& expected, double bound) {
  ASSERT_EQ(got.losses.size(), expected.losses.size());
  for (size_t m = 0; m < expected.losses.size(); ++m) {
    EXPECT_NEAR(got.losses[m], expected.losses[m], bound * expected.losses[m]);
  }
  for (size_t m = 0; m < expected.outputs.size(); ++m) {
    EXPECT_LE(RelativeError(got.outputs[m], expected.outputs[m]), bound);
    EXPECT_LE(RelativeError(got.input_gradients[m], expected.input_gradients[m]), bound);
  }
  EXPECT_NEAR(got.squared_norm / expected.squared_norm, 1, bound);
}

}  // namespace longhaul::worker
