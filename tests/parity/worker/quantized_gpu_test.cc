// LoRA over a quantized base on a GPU: recorded passes compute what passes without CUDA graphs
// compute, to the bit, and what a CPU computes, within rounding.
#include <algorithm>
#include <string>
#include <vector>

#include "run/model/lora.h"
#include "tests/parity/worker/stage_on_gpu.h"

namespace longhaul::worker {
namespace {

class QuantizedOnGpu : public testing::StageOnGpu {
 protected:
  static std::vector<double> LossesOf(QuantizeBase kind, const DeviceName& device, bool graphs) {
    StageOptions options = testing::OptionsOf(GetParam(), device, /*deterministic=*/true);
    options.graphs = graphs;
    options.model.lora = LoraSpec{.rank = 3, .alpha = 6, .quantize_base = kind, .targets = {}};
    options.model.lora->targets = model::TargetsOf(options.model);
    options.train.optimizer.lr = 1e-2;
    testing::StageChain chain(options, GetParam().stages);
    std::vector<double> losses;
    for (uint64_t step = 1; step <= 4; ++step) {
      losses.push_back(chain.Train(step));
      losses.push_back(chain.Evaluate(100));
    }
    return losses;
  }
};

TEST_P(QuantizedOnGpu, LossesAreThoseOfTheCpu) {
  for (const QuantizeBase kind : {QuantizeBase::kNf4, QuantizeBase::kInt8}) {
    SCOPED_TRACE(std::string(ToString(kind)));
    const std::vector<double> recorded = LossesOf(kind, testing::kGpu, /*graphs=*/true);
    EXPECT_EQ(recorded, LossesOf(kind, testing::kGpu, /*graphs=*/false));
    const std::vector<double> on_cpu = LossesOf(kind, testing::kCpu, /*graphs=*/false);
    for (size_t i = 0; i < on_cpu.size(); ++i) {
      EXPECT_NEAR(recorded[i], on_cpu[i], GetParam().tolerance) << i;
    }
    EXPECT_NE(recorded, LossesOf(QuantizeBase::kNone, testing::kGpu, /*graphs=*/true));
  }
}

std::vector<testing::SmallModel> QuantizedModels() {
  using testing::SmallModel;
  constexpr auto kLlama = ModelFamily::kLlama;
  constexpr auto kFp32 = ComputeDtype::kFp32, kBf16 = ComputeDtype::kBf16;
  return {SmallModel{"gpt_bf16", ModelFamily::kGpt, kBf16, Recompute::kNone, 5e-2},
          SmallModel{"llama", kLlama, kFp32, Recompute::kNone, 2e-3},
          SmallModel{"llama_bf16", kLlama, kBf16, Recompute::kNone, 5e-2},
          SmallModel{"llama_bf16_by_blocks", kLlama, kBf16, Recompute::kBlocks, 5e-2},
          SmallModel{"llama_bf16_recomputed", kLlama, kBf16, Recompute::kStage, 5e-2},
          SmallModel{"moe_bf16", ModelFamily::kMoe, kBf16, Recompute::kNone, 5e-2}};
}
INSTANTIATE_TEST_SUITE_P(Models, QuantizedOnGpu, ::testing::ValuesIn(QuantizedModels()),
                         testing::NameOf);

}  // namespace
}  // namespace longhaul::worker
