// A Llama of 7B parameters over a base in NF4: each of three stages takes what the plan says, and
// fits a card of 24 GB. The stages run one after the other on one GPU, over any numbers.
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
constexpr uint32_t kVocabulary = 32000;

struct StageOf7b {
  std::string name;
  uint32_t first_layer, layers;
  uint32_t in_flight;
  QuantizeBase quantize = QuantizeBase::kNf4;
  Recompute recompute = Recompute::kNone;
};

class QuantizedMemoryOnGpu : public ::testing::TestWithParam<StageOf7b> {
 protected:
  static void SetUpTestSuite() { testing::LoadTorchCudaOrFail(); }

  static RunSpec Spec() {
    RunSpec spec;
    spec.model.family = ModelFamily::kLlama;
    spec.model.layers = 32;
    spec.model.hidden = 4096;
    spec.model.heads = spec.model.kv_heads = 32;
    spec.model.intermediate = 11008;
    spec.model.vocabulary = kVocabulary;
    spec.model.context = 1024;
    spec.model.lora =
        LoraSpec{.rank = 16, .alpha = 32, .quantize_base = GetParam().quantize, .targets = {}};
    spec.model.lora->targets = model::TargetsOf(spec.model);
    spec.train.dtype = ComputeDtype::kBf16;
    spec.train.microbatches = GetParam().in_flight;
    spec.train.microbatch_size = 1;
    spec.pipeline.recompute = GetParam().recompute;
    return spec;
  }
  static worker::StageOptions OptionsOf(const RunSpec& spec) {
    worker::StageOptions options;
    options.model = spec.model;
    options.train = spec.train;
    options.vocabulary = kVocabulary;
    options.first_layer = GetParam().first_layer;
    options.layers = GetParam().layers;
    options.first = options.first_layer == 0;
    options.last = options.first_layer + options.layers == spec.model.layers;
    options.recompute = spec.pipeline.recompute;
    options.device = {0};
    options.loads = true;
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
  const std::vector<int32_t> ids(shape.samples * spec.model.context, 1);

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
      outputs.push_back(
          Must(stage->Forward(Microbatch(i), {.tokens = ids, .activation = view, .targets = ids})));
    }
    for (uint32_t i = 0; i < in_flight; ++i) {
      outputs[i] = Must(stage->Backward(Microbatch(i), view));
    }
    Must(stage->AddSquaredGradientNorm(0));
    ASSERT_TRUE(stage->OptimizerStep(Step(step), 1e-4, 1).ok());
    of_step = absl::Now() - before;
  }
  const auto real = static_cast<double>(stage->peak_memory_bytes());
  // LibTorch does not count the program, nor the buffers of links.
  const auto planned = static_cast<double>(
      coordinator::StageMemoryBytes(spec, kVocabulary, options.layers, options.first, options.last,
                                    in_flight, /*on_gpu=*/true) -
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
    ::testing::Values(StageOf7b{"first", 0, 11, 3}, StageOf7b{"middle", 11, 11, 3},
                      StageOf7b{"last", 22, 10, 3}, StageOf7b{"middle_six", 11, 11, 6},
                      StageOf7b{"middle_recomputed", 11, 11, 3, QuantizeBase::kNf4,
                                Recompute::kBlocks},
                      StageOf7b{"middle_int8", 11, 11, 3, QuantizeBase::kInt8},
                      StageOf7b{"middle_bf16", 11, 11, 3, QuantizeBase::kNone}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace longhaul
