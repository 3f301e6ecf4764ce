// What tests of stages on a GPU share: the devices, LibTorch's CUDA part, the small models.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "tests/parity/worker/stage_chain.h"
#include "tests/support/gpu_test.h"
#include "worker/stage/device/torch_cuda.h"

namespace longhaul::testing {

inline constexpr DeviceName kCpu{}, kGpu{0};

inline void LoadTorchCudaOrFail() {
  Gpu();
  const Status loaded = worker::LoadTorchCuda(worker::DefaultTorchCudaPath());
  ASSERT_TRUE(loaded.ok()) << loaded;
}

class StageOnGpu : public ::testing::TestWithParam<SmallModel> {
 protected:
  static void SetUpTestSuite() { LoadTorchCudaOrFail(); }

  static StageChain Chain(const DeviceName& device, bool deterministic = false,
                          bool graphs = true) {
    worker::StageOptions options = OptionsOf(GetParam(), device, deterministic);
    options.graphs = graphs;
    return StageChain(options, GetParam().stages);
  }
};

inline auto SmallModels() {
  constexpr auto kGpt = ModelFamily::kGpt, kLlama = ModelFamily::kLlama;
  constexpr auto kMoe = ModelFamily::kMoe;
  constexpr auto kFp32 = ComputeDtype::kFp32, kBf16 = ComputeDtype::kBf16;
  return ::testing::Values(
      SmallModel{"gpt", kGpt, kFp32, Recompute::kNone, 2e-3},
      SmallModel{"gpt_recomputed", kGpt, kFp32, Recompute::kStage, 2e-3},
      SmallModel{"gpt_bf16", kGpt, kBf16, Recompute::kNone, 5e-2},
      SmallModel{"gpt_bf16_recomputed", kGpt, kBf16, Recompute::kStage, 5e-2},
      SmallModel{"gpt_one_stage", kGpt, kFp32, Recompute::kNone, 2e-3, /*stages=*/1},
      SmallModel{"gpt_one_stage_bf16_recomputed", kGpt, kBf16, Recompute::kStage, 5e-2,
                 /*stages=*/1},
      SmallModel{"gpt_tied", kGpt, kFp32, Recompute::kNone, 2e-3, /*stages=*/1, /*tied=*/true},
      SmallModel{"gpt_tied_bf16", kGpt, kBf16, Recompute::kNone, 5e-2, /*stages=*/1, /*tied=*/true},
      SmallModel{"llama", kLlama, kFp32, Recompute::kNone, 2e-3},
      SmallModel{"llama_recomputed", kLlama, kFp32, Recompute::kStage, 2e-3},
      SmallModel{"llama_bf16", kLlama, kBf16, Recompute::kNone, 5e-2},
      SmallModel{"llama_bf16_recomputed", kLlama, kBf16, Recompute::kStage, 5e-2},
      SmallModel{"llama_by_blocks", kLlama, kFp32, Recompute::kBlocks, 2e-3},
      SmallModel{"llama_bf16_by_blocks", kLlama, kBf16, Recompute::kBlocks, 5e-2},
      SmallModel{"gpt_one_stage_bf16_by_blocks", kGpt, kBf16, Recompute::kBlocks, 5e-2,
                 /*stages=*/1},
      SmallModel{"llama_tied", kLlama, kFp32, Recompute::kNone, 2e-3, /*stages=*/1, /*tied=*/true},
      SmallModel{"olmo2_bf16", kLlama, kBf16, Recompute::kNone, 5e-2, 2, false, "olmo2"},
      SmallModel{"phi3_bf16", kLlama, kBf16, Recompute::kNone, 5e-2, 2, false, "phi3"},
      SmallModel{"gemma2", kLlama, kFp32, Recompute::kNone, 2e-3, 2, false, "gemma2"},
      SmallModel{"gemma2_bf16", kLlama, kBf16, Recompute::kBlocks, 5e-2, 2, false, "gemma2"},
      SmallModel{"gemma3_bf16", kLlama, kBf16, Recompute::kNone, 5e-2, 2, false, "gemma3"},
      SmallModel{"window", kLlama, kFp32, Recompute::kNone, 2e-3, 2, false, "window"},
      SmallModel{"window_bf16_recomputed", kLlama, kBf16, Recompute::kStage, 5e-2, 2, false,
                 "window"},
      SmallModel{"moe", kMoe, kFp32, Recompute::kNone, 2e-3},
      SmallModel{"moe_recomputed", kMoe, kFp32, Recompute::kStage, 2e-3},
      SmallModel{"moe_bf16", kMoe, kBf16, Recompute::kNone, 5e-2},
      SmallModel{"moe_bf16_by_blocks", kMoe, kBf16, Recompute::kBlocks, 5e-2},
      SmallModel{"gpt_tied_apart", kGpt, kFp32, Recompute::kNone, 2e-3, /*stages=*/2,
                 /*tied=*/true},
      SmallModel{"llama_tied_apart_bf16", kLlama, kBf16, Recompute::kNone, 5e-2, /*stages=*/2,
                 /*tied=*/true});
}

inline std::string NameOf(const ::testing::TestParamInfo<SmallModel>& model) {
  return model.param.name;
}

}  // namespace longhaul::testing
