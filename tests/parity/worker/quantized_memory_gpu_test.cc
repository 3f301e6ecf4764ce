// A Llama of 7B parameters and a Qwen2.5 of 3B over a base in NF4: each of three stages takes what
// the plan says, and fits a card of 24 GB. The stages run one after the other on one GPU, over any
// numbers.
#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "planner/memory.h"
#include "planner/planner.h"
#include "run/boundary/boundary_shape.h"
#include "run/model/lora.h"
#include "tests/parity/worker/stage_on_gpu.h"
#include "worker/stage/stage.h"

namespace longhaul {
namespace {

using ::longhaul::testing::Must;

constexpr uint64_t kCard = 24'000'000'000;

enum class Shape { kLlama7b, kQwen3b };

struct StageOverBase {
  std::string name;
  uint32_t first_layer, layers;
  uint32_t in_flight;
  QuantizeBase quantize = QuantizeBase::kNf4;
  Recompute recompute = Recompute::kNone;
  Shape shape = Shape::kLlama7b;
  bool pairs = false;  // direct preference optimization
};

ModelSpec ModelOf(Shape shape) {
  ModelSpec model;
  model.family = ModelFamily::kLlama;
  model.context = 1024;
  if (shape == Shape::kLlama7b) {
    model.layers = 32;
    model.hidden = 4096;
    model.heads = model.kv_heads = 32;
    model.intermediate = 11008;
    model.vocabulary = 32000;
  } else {
    model.layers = 36;
    model.hidden = 2048;
    model.heads = 16;
    model.kv_heads = 2;
    model.intermediate = 11008;
    model.vocabulary = 151'936;
    model.tied = model.qkv_bias = true;
    model.rope_theta = 1e6;
  }
  return model;
}

class QuantizedMemoryOnGpu : public ::testing::TestWithParam<StageOverBase> {
 protected:
  static void SetUpTestSuite() { testing::LoadTorchCudaOrFail(); }

  static RunSpec Spec() {
    RunSpec spec;
    spec.model = ModelOf(GetParam().shape);
    spec.model.lora =
        LoraSpec{.rank = 16, .alpha = 32, .quantize_base = GetParam().quantize, .targets = {}};
    spec.model.lora->targets = model::TargetsOf(spec.model);
    spec.train.dtype = ComputeDtype::kBf16;
    spec.train.microbatches = GetParam().in_flight;
    spec.train.microbatch_size = 1;
    if (GetParam().pairs) spec.train.dpo = DpoSpec();
    spec.data.mask_documents = GetParam().pairs;
    spec.pipeline.recompute = GetParam().recompute;
    spec.links.codecs = {"none", "none"};  // a stage has no codecs, nor their tables
    return spec;
  }
  static worker::StageOptions OptionsOf(const RunSpec& spec) {
    worker::StageOptions options;
    options.model = spec.model;
    options.train = spec.train;
    options.vocabulary = *spec.model.vocabulary;
    options.first_layer = GetParam().first_layer;
    options.layers = GetParam().layers;
    options.first = options.first_layer == 0;
    options.last = options.first_layer + options.layers == spec.model.layers;
    options.recompute = spec.pipeline.recompute;
    options.device = {0};
    options.loads = true;
    options.masked_attention = options.masked_targets = GetParam().pairs;
    return options;
  }
  // Numbers of about the size of weights; norms multiply by 1.
  static Status AnyNumbers(const model::PlacedParameter& placed, std::span<float> values) {
    uint32_t random = 1;
    for (float& value : values) {
      random = random * 1664525 + 1013904223;
      value = placed.parameter.shape.is_matrix()
                  ? (static_cast<float>(random >> 8) * 0x1p-24f - 0.5f) * 0.05f
                  : 1.0f;
    }
    return absl::OkStatus();
  }
};

TEST_P(QuantizedMemoryOnGpu, AStageTakesWhatThePlanSays) {
  const RunSpec spec = Spec();
  const worker::StageOptions options = OptionsOf(spec);
  const uint32_t in_flight = GetParam().in_flight;
  const codec::Shape shape = BoundaryShape(spec);
  const at::Tensor values = at::full({static_cast<int64_t>(shape.elements())}, 0.5,
                                     at::TensorOptions(at::kFloat).device(at::kCUDA));
  const codec::TensorView view{values.const_data_ptr(), codec::Dtype::kF32, shape};
  const codec::Shape of_gradient = BoundaryShape(spec, Direction::kBackward);
  const codec::TensorView gradient{values.const_data_ptr(), codec::Dtype::kF32, of_gradient};
  const std::vector<int32_t> ids(of_gradient.samples * spec.model.context, 1);
  std::vector<int32_t> documents;  // two pairs
  for (size_t i = 0; GetParam().pairs && i < ids.size(); ++i) {
    documents.push_back(static_cast<int32_t>(4 * i / ids.size()));
  }

  const absl::Time begun = absl::Now();
  const std::unique_ptr<worker::Stage> stage = Must(worker::Stage::Create(options));
  ASSERT_TRUE(stage->Load(AnyNumbers).ok());
  const absl::Duration loading = absl::Now() - begun;
  const uint64_t held = stage->memory_bytes();
  absl::Duration of_step;
  for (uint64_t step = 1; step <= 3; ++step) {
    const absl::Time before = absl::Now();
    std::vector<std::optional<worker::BoundaryTensor>> outputs;
    for (uint32_t i = 0; i < in_flight; ++i) {
      outputs.push_back(Must(stage->Forward(Microbatch(i), {.tokens = ids,
                                                            .activation = view,
                                                            .targets = ids,
                                                            .documents = documents,
                                                            .counted = 2})));
    }
    for (uint32_t i = 0; i < in_flight; ++i) {
      outputs[i] = Must(stage->Backward(Microbatch(i), gradient));
    }
    Must(stage->AddSquaredGradientNorm(0));
    ASSERT_TRUE(stage->OptimizerStep(Step(step), 1e-4, 1).ok());
    of_step = absl::Now() - before;
  }
  const auto real = static_cast<double>(stage->peak_memory_bytes());
  // LibTorch does not count the program, nor the buffers of links.
  const auto planned = static_cast<double>(
      coordinator::StageMemoryBytes(spec, options.vocabulary, options.layers, options.first,
                                    options.last, in_flight, /*on_gpu=*/true) -
      coordinator::kProgramBytes -
      coordinator::kBoundaryBuffers * shape.elements() * sizeof(float));
  fmt::print(
      "{}: {} in flight: peak {:.3f} GB, planned {:.3f} GB ({:+.1f} %), loaded {:.3f} GB in "
      "{:.1f} s, {:.1f} ms a microbatch\n",
      GetParam().name, in_flight, real / 1e9, planned / 1e9, 100 * (planned / real - 1),
      static_cast<double>(held) / 1e9, absl::ToDoubleSeconds(loading),
      absl::ToDoubleMilliseconds(of_step) / in_flight);
  EXPECT_NEAR(planned, real, 0.1 * real);
  if (GetParam().quantize == QuantizeBase::kNf4) {
    EXPECT_LT(real, kCard);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Stages, QuantizedMemoryOnGpu,
    ::testing::Values(StageOverBase{"first", 0, 11, 3}, StageOverBase{"middle", 11, 11, 3},
                      StageOverBase{"last", 22, 10, 3}, StageOverBase{"middle_six", 11, 11, 6},
                      StageOverBase{"middle_recomputed", 11, 11, 3, QuantizeBase::kNf4,
                                    Recompute::kBlocks},
                      StageOverBase{"middle_int8", 11, 11, 3, QuantizeBase::kInt8},
                      StageOverBase{"middle_bf16", 11, 11, 3, QuantizeBase::kNone},
                      StageOverBase{.name = "qwen_first",
                                    .first_layer = 0,
                                    .layers = 12,
                                    .in_flight = 3,
                                    .shape = Shape::kQwen3b},
                      StageOverBase{.name = "qwen_middle",
                                    .first_layer = 12,
                                    .layers = 12,
                                    .in_flight = 3,
                                    .shape = Shape::kQwen3b},
                      StageOverBase{.name = "qwen_last",
                                    .first_layer = 24,
                                    .layers = 12,
                                    .in_flight = 3,
                                    .shape = Shape::kQwen3b},
                      StageOverBase{.name = "middle_of_pairs",
                                    .first_layer = 11,
                                    .layers = 11,
                                    .in_flight = 3,
                                    .pairs = true},
                      StageOverBase{.name = "last_of_pairs",
                                    .first_layer = 22,
                                    .layers = 10,
                                    .in_flight = 3,
                                    .recompute = Recompute::kBlocks,
                                    .pairs = true}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace longhaul
