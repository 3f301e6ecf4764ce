// Dropout of adapters on a GPU: it drops what a CPU drops, and recorded passes drop anew in each
// microbatch, but nothing in validation.
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>

#include <numeric>
#include <vector>

#include "tests/parity/worker/slice_cases.h"
#include "tests/parity/worker/stage_on_gpu.h"
#include "worker/stage/device/torch_device.h"
#include "worker/stage/model/dropout.h"

namespace longhaul::worker {
namespace {

class DropoutOnGpu : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { testing::LoadTorchCudaOrFail(); }
};

TEST_F(DropoutOnGpu, DropsWhatACpuDrops) {
  constexpr int64_t kRows = 3000, kChannels = 2048;  // several pieces
  std::vector<int64_t> ids(kChannels);
  std::iota(ids.begin(), ids.end(), 0);
  const at::Tensor channels = Dropout::ChannelsOf("name", ids);
  Dropout dropout(0.3);
  const auto mask = [&](const at::Device& device) {
    const at::Tensor random =
        at::scalar_tensor(Dropout::RandomOf(9, 1), at::TensorOptions(at::kLong).device(device));
    const Dropout::Pass pass(&dropout, random, kRows);
    at::Tensor values = at::ones({kRows, kChannels}, at::TensorOptions(at::kFloat).device(device));
    dropout.current()->Drop(channels.to(device), values);
    return values.cpu();
  };
  EXPECT_TRUE(mask(TorchDevice(testing::kGpu)).equal(mask(TorchDevice(testing::kCpu))));
}

// SlicedChain validates each microbatch before it trains with it.
TEST_F(DropoutOnGpu, RecordedPassesGiveWhatTheyGiveWithout) {
  constexpr SliceDevice kRecorded{testing::kGpu, true}, kAsItGoes{testing::kGpu, false};
  for (const ComputeDtype dtype : {ComputeDtype::kFp32, ComputeDtype::kBf16}) {
    for (const Recompute recompute : {Recompute::kNone, Recompute::kBlocks, Recompute::kStage}) {
      for (const uint32_t slices : {1u, 2u}) {
        SCOPED_TRACE(std::string(ToString(dtype)) + std::string(ToString(recompute)));
        SliceCase one{.name = "",
                      .family = ModelFamily::kLlama,
                      .recompute = recompute,
                      .lora = true,
                      .dtype = dtype,
                      .dropout = 0.3};
        const OfSlices recorded = SlicedChain(one, slices, kRecorded).Train(3);
        const OfSlices without = SlicedChain(one, slices, kAsItGoes).Train(3);
        EXPECT_EQ(recorded.losses, without.losses);
        EXPECT_EQ(recorded.evaluated, without.evaluated);
        EXPECT_EQ(recorded.moments, without.moments);
        one.dropout = 0;
        EXPECT_NE(SlicedChain(one, slices, kRecorded).Train(3).moments, recorded.moments);
      }
    }
  }
}

}  // namespace
}  // namespace longhaul::worker
