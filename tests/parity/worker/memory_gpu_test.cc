// What the planner says that a stage takes of a GPU's memory is what LibTorch takes for it, within
// the tenth that a plan may be off.
#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "planner/memory.h"
#include "planner/planner.h"
#include "run/boundary/boundary_shape.h"
#include "tests/parity/worker/stage_on_gpu.h"
#include "tests/support/kin.h"
#include "worker/stage/stage.h"

namespace longhaul {
namespace {

using ::longhaul::testing::Must;

struct Case {
  ModelFamily family;
  bool first, last;
  Recompute recompute;
  uint32_t in_flight;
  ComputeDtype dtype = ComputeDtype::kBf16;
  uint32_t slices = 1;
  std::string_view kin = {};  // of Llama (tests/support/kin.h)
  uint32_t context = 1024;
  bool masked = false;  // attention within documents
};

class MemoryOnGpu : public ::testing::TestWithParam<Case> {
 protected:
  static void SetUpTestSuite() { testing::LoadTorchCudaOrFail(); }
};

RunSpec SpecOf(const Case& test) {
  RunSpec spec;
  spec.model.family = test.family;
  spec.model.layers = test.first && test.last ? 6 : 12;
  spec.model.hidden = 1024;
  spec.model.heads = 16;
  spec.model.context = test.context;
  spec.model.kv_heads = 4;
  spec.model.intermediate = 2816;
  spec.model.vocabulary = 32000;
  spec.train.microbatches = test.in_flight;
  spec.train.microbatch_size = 1;
  spec.train.dtype = test.dtype;
  spec.pipeline.recompute = test.recompute;
  spec.pipeline.slices = test.slices;
  spec.data.mask_documents = test.masked;
  spec.links.codecs = {"none", "none"};  // a stage has no codecs, nor their tables
  testing::MakeKin(test.kin, &spec.model);
  return spec;
}

TEST_P(MemoryOnGpu, AStageTakesWhatThePlanSays) {
  const Case& test = GetParam();
  const RunSpec spec = SpecOf(test);
  worker::StageOptions options;
  options.model = spec.model;
  options.train = spec.train;
  options.first = test.first;
  options.last = test.last;
  options.recompute = test.recompute;
  options.layers = 6;
  options.first_layer = options.first ? 0 : options.last ? 6 : 3;
  options.device = {0};
  options.slices = test.slices;
  options.masked_attention = test.masked;

  const codec::Shape shape = SliceShape(spec.model, spec.train, spec.group, test.slices);
  const at::Tensor values = at::full({static_cast<int64_t>(shape.elements())}, 0.5,
                                     at::TensorOptions(at::kFloat).device(at::kCUDA));
  const codec::TensorView view{values.const_data_ptr(), codec::Dtype::kF32, shape};
  const std::vector<int32_t> ids(shape.samples * spec.model.context, 1);
  std::vector<int32_t> documents;
  for (size_t i = 0; test.masked && i < ids.size(); ++i) {
    documents.push_back(static_cast<int32_t>(i % spec.model.context / 200));
  }

  const std::unique_ptr<worker::Stage> stage = Must(worker::Stage::Create(options));
  for (uint64_t step = 1; step <= 2; ++step) {
    std::vector<std::optional<worker::BoundaryTensor>> outputs;
    const SliceOrder order(test.slices);
    const uint32_t passes = test.in_flight * test.slices;
    for (uint32_t i = 0; i < passes; ++i) {
      outputs.push_back(Must(stage->Forward(
          order.At(i, Direction::kForward),
          {.tokens = ids, .activation = view, .targets = ids, .documents = documents})));
    }
    for (uint32_t i = 0; i < passes; ++i) {
      outputs[i] = Must(stage->Backward(order.At(i, Direction::kBackward), view));
    }
    Must(stage->AddSquaredGradientNorm(0));
    ASSERT_TRUE(stage->OptimizerStep(Step(step), 1e-4, 1).ok());
  }
  const auto real = static_cast<double>(stage->peak_memory_bytes());
  // LibTorch does not count the program, nor the buffers of links.
  const auto planned = static_cast<double>(
      coordinator::StageMemoryBytes(spec, options.vocabulary, options.layers, options.first,
                                    options.last, test.in_flight, /*on_gpu=*/true) -
      coordinator::kProgramBytes -
      coordinator::kBoundaryBuffers * BoundaryShape(spec).elements() * sizeof(float));
  fmt::print("{:.1f} MiB, planned {:.1f}: {:+.1f} %\n", real / 0x1p20, planned / 0x1p20,
             100 * (planned / real - 1));
  EXPECT_NEAR(planned, real, 0.1 * real);
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const ModelFamily family : {ModelFamily::kGpt, ModelFamily::kLlama}) {
    for (const Recompute recompute : {Recompute::kNone, Recompute::kBlocks, Recompute::kStage}) {
      for (const uint32_t in_flight : {1, 6}) {
        cases.push_back({family, true, false, recompute, in_flight});
        cases.push_back({family, false, false, recompute, in_flight});
        cases.push_back({family, false, true, recompute, in_flight});
        cases.push_back({family, true, true, recompute, in_flight});
      }
    }
  }
  // Heads of queries share keys and values, and score matrices would take 64 MiB a block.
  for (const uint32_t in_flight : {1, 6}) {
    cases.push_back(
        {ModelFamily::kLlama, false, false, Recompute::kNone, in_flight, ComputeDtype::kFp32});
    for (const ModelFamily family : {ModelFamily::kGpt, ModelFamily::kLlama}) {
      for (const Recompute recompute : {Recompute::kNone, Recompute::kBlocks}) {
        cases.push_back({family, false, false, recompute, in_flight, ComputeDtype::kBf16, 4});
      }
    }
  }
  constexpr auto kLlama = ModelFamily::kLlama;
  for (const std::string_view kin : {"olmo2", "phi3", "gemma2", "gemma3", "window"}) {
    cases.push_back({kLlama, false, false, Recompute::kNone, 2, ComputeDtype::kBf16, 1, kin});
    cases.push_back({kLlama, false, true, Recompute::kNone, 2, ComputeDtype::kBf16, 1, kin});
  }
  for (const ComputeDtype dtype : {ComputeDtype::kFp32, ComputeDtype::kBf16}) {
    cases.push_back({kLlama, false, false, Recompute::kNone, 2, dtype, 1, "", 1024, true});
    cases.push_back({kLlama, false, false, Recompute::kNone, 2, dtype, 1, "window", 1024, true});
  }
  // Long contexts.
  for (const std::string_view kin : {"", "gemma2", "gemma3", "window"}) {
    for (const Recompute recompute : {Recompute::kNone, Recompute::kBlocks}) {
      const bool masked = kin.empty() && recompute == Recompute::kBlocks;
      cases.push_back(
          {kLlama, false, true, recompute, 1, ComputeDtype::kBf16, 1, kin, 32768, masked});
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Stages, MemoryOnGpu, ::testing::ValuesIn(Cases()), [](const auto& test) {
  return fmt::format(
      "{}{}{}{}{}{}{}{}", test.param.kin.empty() ? ToString(test.param.family) : test.param.kin,
      test.param.dtype == ComputeDtype::kFp32 ? "Fp32" : "",
      test.param.recompute == Recompute::kNone     ? ""
      : test.param.recompute == Recompute::kBlocks ? "ByBlocks"
                                                   : "Recompute",
      test.param.first && test.param.last ? "Whole"
      : test.param.first                  ? "First"
      : test.param.last                   ? "Last"
                                          : "Middle",
      test.param.in_flight, test.param.slices > 1 ? "InSlices" : "",
      test.param.masked ? "OfDocuments" : "", test.param.context > 1024 ? "Long" : "");
});

}  // namespace
}  // namespace longhaul
