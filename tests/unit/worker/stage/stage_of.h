// Stages of every family of models, small ones.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "worker/stage/stage.h"

namespace longhaul::worker {

// Runs a test for every family of models.
class StageOf : public ::testing::TestWithParam<ModelFamily> {
 protected:
  static constexpr uint32_t kRows = 2, kContext = 16, kHidden = 32;

  static StageOptions WholeModel() {
    StageOptions options;
    options.model.family = GetParam();
    options.model.layers = 2;
    options.model.hidden = kHidden;
    options.model.heads = 4;
    options.model.context = kContext;
    if (GetParam() == ModelFamily::kLlama) {
      options.model.kv_heads = 2;
      options.model.intermediate = 80;
      options.model.qkv_bias = true;
    }
    if (GetParam() == ModelFamily::kMoe) {
      options.model.kv_heads = 2;
      options.model.experts = 4;
      options.model.experts_per_token = 2;
      options.model.expert_intermediate = 40;
      options.model.shared_intermediate = 24;
    }
    options.layers = 2;
    options.train.steps = 10;
    options.train.microbatches = 2;
    options.train.microbatch_size = kRows;
    options.train.optimizer.lr = 1e-2;
    return options;
  }
  static StageOptions MiddleStage() {
    StageOptions options = WholeModel();
    options.first = options.last = false;
    options.first_layer = 1;
    options.layers = 1;
    return options;
  }
  static StageOptions LastStage() {
    StageOptions options = MiddleStage();
    options.last = true;
    return options;
  }
  // The weight of a matrix in block 1 that is not square, without ".weight", and its shape.
  static std::string MlpName() {
    return GetParam() == ModelFamily::kLlama ? "model.layers.1.mlp.up_proj"
           : GetParam() == ModelFamily::kMoe ? "model.layers.1.mlp.experts.3.up_proj"
                                             : "h.1.mlp.fc";
  }
  static int64_t MlpWidth() {
    return GetParam() == ModelFamily::kLlama ? 80 : GetParam() == ModelFamily::kMoe ? 40 : 128;
  }

  static std::unique_ptr<Stage> Make(const StageOptions& options) {
    auto stage = Stage::Create(options);
    EXPECT_TRUE(stage.ok()) << stage.status();
    return *std::move(stage);
  }

  // Ids, targets and an activation that differ with `salt`.
  struct Example {
    explicit Example(int salt)
        : ids(kRows * kContext), targets(ids.size()), values(ids.size() * kHidden) {
      for (size_t i = 0; i < ids.size(); ++i) {
        ids[i] = static_cast<int32_t>((i * 31 + salt * 7) % 256);
        targets[i] = static_cast<int32_t>((i * 31 + salt * 7 + 31) % 256);
      }
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = std::sin(static_cast<float>(i + 17 * salt));
      }
    }
    codec::TensorView activation() const {
      return {values.data(), codec::Dtype::kF32, {kRows, kContext, kHidden}};
    }
    Stage::Input input() const { return {ids, activation(), targets}; }
    std::vector<int32_t> ids, targets;
    std::vector<float> values;
  };

  static std::vector<float> Values(const std::optional<BoundaryTensor>& tensor) {
    EXPECT_TRUE(tensor.has_value());
    if (!tensor) return {};
    EXPECT_EQ(tensor->view.dtype, codec::Dtype::kF32);
    const auto* data = static_cast<const float*>(tensor->view.data);
    return {data, data + tensor->view.shape.elements()};
  }

  static void Train(Stage& stage, uint64_t step) {
    for (uint32_t m = 0; m < 2; ++m) {
      const Example example(static_cast<int>(step * 2 + m));
      ASSERT_TRUE(stage.Forward(Microbatch(m), example.input()).ok());
      ASSERT_TRUE(stage.Backward(Microbatch(m), {}).ok());
    }
    const Status status = stage.OptimizerStep(Step(step), 1e-2, 0.5);
    ASSERT_TRUE(status.ok()) << status;
  }

  static const NamedArray* Find(const std::vector<NamedArray>& arrays, std::string_view name) {
    for (const NamedArray& array : arrays) {
      if (array.name == name) return &array;
    }
    return nullptr;
  }
};

}  // namespace longhaul::worker
