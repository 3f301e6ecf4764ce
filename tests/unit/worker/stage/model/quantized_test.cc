// A stage over a quantized base computes what it computes over the numbers that the base has after
// it is dequantized, bit for bit.
#include "worker/stage/model/quantized.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "codec/quantized/format.h"
#include "codec/quantized/int8.h"
#include "codec/quantized/nf4.h"
#include "run/model/lora.h"
#include "run/published/weights.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {
namespace {

using ::testing::HasSubstr;

struct QuantizedCase {
  std::string folder;
  QuantizeBase kind;
  ComputeDtype dtype;
};

class QuantizedBase : public ::testing::TestWithParam<QuantizedCase> {
 protected:
  static constexpr uint32_t kRows = 2, kTokens = 16;

  QuantizedBase() : weights_(published::ReadFolder(Folder())) {}
  void SetUp() override { ASSERT_TRUE(weights_.ok()) << weights_.status(); }

  static std::string Folder() {
    return std::string(LONGHAUL_SOURCE_DIR) + "/tests/fixtures/models/" + GetParam().folder;
  }
  // All of the model, with adapters at half of the modules: some matrices have none.
  StageOptions Options(QuantizeBase kind) const {
    StageOptions options;
    options.model = published::ParseConfig(weights_->config_json, "config.json")->model;
    options.vocabulary = *options.model.vocabulary;
    options.model.context = kTokens;
    options.model.lora = LoraSpec{.rank = 3, .alpha = 6, .quantize_base = kind, .targets = {}};
    std::vector<std::string> targets = model::TargetsOf(options.model);
    targets.resize((targets.size() + 1) / 2);
    options.model.lora->targets = std::move(targets);
    options.layers = options.model.layers;
    options.train.steps = 10;
    options.train.microbatches = 1;
    options.train.microbatch_size = kRows;
    options.train.dtype = GetParam().dtype;
    options.loads = true;
    return options;
  }
  // `rounded`: matrices of blocks are quantized by codec/quantized, and dequantized again.
  ReadParameter Read(const StageOptions& options, bool rounded) const {
    return [this, model = options.model, rounded](const model::PlacedParameter& placed,
                                                  std::span<float> values) {
      LH_ASSIGN_OR_RETURN(const published::Tensor* tensor,
                          published::TensorOf(*weights_, model, placed));
      LH_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes,
                          published::ReadTensor(Folder(), *tensor));
      published::Decode(*tensor, bytes, placed.parameter, values);
      const model::Shape& shape = placed.parameter.shape;
      const bool is_matrix = placed.parameter.in_product && placed.parameter.is_block_matrix();
      if (rounded && is_matrix) Round({shape.rows, shape.columns}, values);
      return absl::OkStatus();
    };
  }
  static void Round(const codec::quantized::MatrixShape& shape, std::span<float> values) {
    const codec::quantized::Nf4Layout nf4(values.size());
    const codec::quantized::Int8Layout int8(shape.rows, shape.columns);
    std::vector<std::byte> stored(std::max(nf4.bytes, int8.bytes));
    if (GetParam().kind == QuantizeBase::kNf4) {
      EXPECT_TRUE(codec::quantized::Nf4Quantize(values, stored.data()));
      codec::quantized::Nf4Dequantize(stored.data(), values.size(), 0, nf4.blocks, values.data());
    } else {
      EXPECT_TRUE(codec::quantized::Int8Quantize(values, shape, 0, shape.rows, stored.data()));
      codec::quantized::Int8Dequantize(stored.data(), shape, 0, shape.rows, values.data());
    }
  }
  std::unique_ptr<Stage> Loaded(QuantizeBase kind, bool rounded) const {
    const StageOptions options = Options(kind);
    auto stage = Stage::Create(options);
    EXPECT_TRUE(stage.ok()) << stage.status();
    const Status loaded = (*stage)->Load(Read(options, rounded));
    EXPECT_TRUE(loaded.ok()) << loaded;
    return *std::move(stage);
  }
  static std::vector<int32_t> Ids(uint64_t salt) {
    std::vector<int32_t> ids(kRows * kTokens);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>((i * 31 + salt * 7) % 90);
    return ids;
  }
  // The losses and norms of three steps, and what the adapters and moments are then.
  struct Trained {
    std::vector<double> losses, norms;
    std::vector<std::vector<float>> arrays;
    friend bool operator==(const Trained&, const Trained&) = default;
  };
  static Trained Train(Stage& stage) {
    Trained trained;
    for (uint64_t step = 1; step <= 3; ++step) {
      const std::vector<int32_t> ids = Ids(step), targets = Ids(step + 5);
      EXPECT_TRUE(stage.Forward(Microbatch(0), {ids, {}, targets}).ok());
      trained.losses.push_back(*stage.Loss(Microbatch(0)));
      EXPECT_TRUE(stage.Backward(Microbatch(0), {}).ok());
      trained.norms.push_back(stage.AddSquaredGradientNorm(0)->sum);
      EXPECT_TRUE(stage.OptimizerStep(Step(step), 1e-2, 1).ok());
    }
    const StageSnapshot snapshot = *stage.Snapshot();
    for (const NamedArray& array : snapshot.parameters) trained.arrays.push_back(array.values);
    for (const NamedArray& array : snapshot.moments) trained.arrays.push_back(array.values);
    return trained;
  }

  StatusOr<published::Weights> weights_;
};

TEST_P(QuantizedBase, TrainsAsOverTheDequantizedModel) {
  const auto quantized = Loaded(GetParam().kind, /*rounded=*/false);
  const auto plain = Loaded(QuantizeBase::kNone, /*rounded=*/true);
  const Trained of_plain = Train(*plain);
  EXPECT_EQ(Train(*quantized), of_plain);
  const auto published = Loaded(QuantizeBase::kNone, /*rounded=*/false);
  EXPECT_NE(Train(*published), of_plain);  // which is another model
}

// A stage that is made again, and gets the adapters of a checkpoint, goes on with the same bits.
TEST_P(QuantizedBase, GoesOnFromASnapshot) {
  const auto first = Loaded(GetParam().kind, /*rounded=*/false);
  const Trained before = Train(*first);
  const StageSnapshot snapshot = *first->Snapshot();
  const auto again = Loaded(GetParam().kind, /*rounded=*/false);
  ASSERT_TRUE(again->Restore(snapshot).ok());
  for (Stage* const stage : {first.get(), again.get()}) {
    const std::vector<int32_t> ids = Ids(20), targets = Ids(25);
    ASSERT_TRUE(stage->Forward(Microbatch(0), {ids, {}, targets}).ok());
    ASSERT_TRUE(stage->Backward(Microbatch(0), {}).ok());
  }
  EXPECT_EQ(first->AddSquaredGradientNorm(0)->sum, again->AddSquaredGradientNorm(0)->sum);
}

TEST_P(QuantizedBase, WhatIsNotFiniteIsRefusedByName) {
  const StageOptions options = Options(GetParam().kind);
  auto stage = Stage::Create(options);
  ASSERT_TRUE(stage.ok()) << stage.status();
  std::string broken;
  const Status loaded =
      (*stage)->Load([&, read = Read(options, false)](const model::PlacedParameter& placed,
                                                      std::span<float> values) {
        LH_RETURN_IF_ERROR(read(placed, values));
        if (placed.parameter.is_quantized() && placed.block == 1 && broken.empty()) {
          broken = placed.Name();
          values[values.size() / 2] = std::numeric_limits<float>::infinity();
        }
        return absl::OkStatus();
      });
  EXPECT_EQ(loaded.code(), absl::StatusCode::kInvalidArgument) << loaded;
  EXPECT_THAT(std::string(Message(loaded)), HasSubstr(broken + " cannot be stored as "));
}

INSTANTIATE_TEST_SUITE_P(
    Folders, QuantizedBase, ::testing::ValuesIn([] {
      std::vector<QuantizedCase> cases;
      for (const char* const folder : {"gpt2", "llama3", "qwen2_5", "phi3", "qwen2_moe"}) {
        for (const QuantizeBase kind : {QuantizeBase::kNf4, QuantizeBase::kInt8}) {
          for (const ComputeDtype dtype : {ComputeDtype::kFp32, ComputeDtype::kBf16}) {
            cases.push_back({folder, kind, dtype});
          }
        }
      }
      return cases;
    }()),
    [](const auto& test) {
      return std::string(test.param.folder) + "_" + std::string(ToString(test.param.kind)) + "_" +
             std::string(ToString(test.param.dtype));
    });

}  // namespace
}  // namespace longhaul::worker
