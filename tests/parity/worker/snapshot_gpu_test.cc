// A snapshot of a stage on a GPU has what the stage has, to the bit and of one step; and how its
// values get to the host.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/cuda/memory.h"
#include "base/cuda/stream.h"
#include "tests/parity/worker/stage_on_gpu.h"
#include "worker/stage/device/host_copies.h"
#include "worker/stage/stage.h"

namespace longhaul::testing {
namespace {

using worker::HostCopies;
using worker::NamedArray;
using worker::Stage;
using worker::StageSnapshot;

// Finite floats whose lower half is zero: bf16 has them, too.
std::vector<float> Numbers(size_t count, uint32_t seed) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    const auto bits = static_cast<uint32_t>(i * 2654435761u + seed * 40503u) & 0x3fff0000u;
    values[i] = std::bit_cast<float>(bits);
  }
  return values;
}

cuda::DeviceBuffer OnGpu(const void* data, size_t bytes) {
  auto buffer = Must(cuda::DeviceBuffer::Create(Gpu(), std::max<size_t>(bytes, 1)));
  if (bytes == 0) return buffer;
  auto pinned = Must(cuda::PinnedBuffer::Create(Gpu(), bytes));
  std::memcpy(pinned.span().data(), data, bytes);
  cuda::Stream stream = Must(cuda::Stream::Create(Gpu()));
  EXPECT_TRUE(stream.Copy(buffer.data_dev(), pinned.span().data(), bytes).ok());
  Await(stream);
  return buffer;
}

// Around the size of a buffer, which holds 2 Mi floats, and of more arrays than there are threads.
TEST(HostCopies, TakesArraysOfAnySize) {
  constexpr size_t kBuffer = HostCopies::kPinnedBytes / 8 / sizeof(float);
  const auto copies = Must(HostCopies::Create(Gpu()));
  for (const bool bf16 : {false, true}) {
    const size_t buffer = bf16 ? 2 * kBuffer : kBuffer;
    std::vector<std::vector<float>> wanted, got;
    std::vector<cuda::DeviceBuffer> there;
    for (const size_t count : {size_t{0}, size_t{1}, size_t{4095}, buffer - 1, buffer, buffer + 1,
                               2 * buffer, 3 * buffer + 7, size_t{4097}}) {
      wanted.push_back(Numbers(count, static_cast<uint32_t>(wanted.size())));
      std::vector<uint16_t> halves(bf16 ? count : 0);
      for (size_t i = 0; i < halves.size(); ++i) {
        halves[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(wanted.back()[i]) >> 16);
      }
      there.push_back(bf16 ? OnGpu(halves.data(), count * sizeof(uint16_t))
                           : OnGpu(wanted.back().data(), count * sizeof(float)));
    }
    for (int again = 0; again < 2; ++again) {
      got.assign(wanted.size(), std::vector<float>(3, -1.0f));  // which they take the place of
      std::vector<HostCopies::Copy> asked;
      for (size_t k = 0; k < wanted.size(); ++k) {
        asked.push_back({there[k].data_dev(), wanted[k].size(), bf16, &got[k]});
      }
      const Status status = copies->Run(asked);
      ASSERT_TRUE(status.ok()) << status;
      for (size_t k = 0; k < wanted.size(); ++k) {
        EXPECT_TRUE(got[k] == wanted[k]) << wanted[k].size() << (bf16 ? " in bf16" : "");
      }
    }
  }
}

class SnapshotOnGpu : public ::testing::TestWithParam<MomentDtype> {
 protected:
  static void SetUpTestSuite() { LoadTorchCudaOrFail(); }

  // Arrays of up to 16 MiB in fp32.
  static worker::StageOptions Options(const DeviceName& device) {
    worker::StageOptions options;
    options.model.layers = 1;
    options.model.hidden = 1024;
    options.model.heads = 16;
    options.model.context = 64;
    options.train.microbatches = 1;
    options.train.dtype = ComputeDtype::kBf16;
    options.train.optimizer.moments = GetParam();
    options.layers = 1;
    options.device = device;
    return options;
  }
  static void Train(Stage* stage, uint64_t step) {
    const std::vector<int32_t> ids(64, 3), targets(64, 5);
    Must(stage->Forward(Microbatch(0), {ids, {}, targets}));
    Must(stage->Backward(Microbatch(0), {}));
    const Status status = stage->OptimizerStep(Step(step), 1e-3, 1);
    ASSERT_TRUE(status.ok()) << status;
  }
  static void ExpectSame(const std::vector<NamedArray>& one, const std::vector<NamedArray>& other) {
    ASSERT_EQ(one.size(), other.size());
    for (size_t k = 0; k < one.size(); ++k) {
      EXPECT_EQ(one[k].name, other[k].name);
      EXPECT_EQ(one[k].shape, other[k].shape) << one[k].name;
      EXPECT_TRUE(one[k].values == other[k].values) << one[k].name;
    }
  }
  static void ExpectSame(const StageSnapshot& one, const StageSnapshot& other) {
    EXPECT_EQ(one.step, other.step);
    ExpectSame(one.parameters, other.parameters);
    ExpectSame(one.moments, other.moments);
  }
};

TEST_P(SnapshotOnGpu, HasWhatWasPutThere) {
  const auto cpu = Must(Stage::Create(Options(kCpu))), gpu = Must(Stage::Create(Options(kGpu)));
  StageSnapshot wanted = Must(cpu->Snapshot());
  ExpectSame(Must(gpu->Snapshot()), wanted);  // initial parameters are the same everywhere
  wanted.step = 7;
  uint32_t seed = 0;
  for (std::vector<NamedArray>* arrays : {&wanted.parameters, &wanted.moments}) {
    for (NamedArray& array : *arrays) array.values = Numbers(array.values.size(), ++seed);
  }
  const Status status = gpu->Restore(wanted);
  ASSERT_TRUE(status.ok()) << status;
  ExpectSame(Must(gpu->Snapshot()), wanted);
}

// Also while the step after it is under way, whose update has not come.
TEST_P(SnapshotOnGpu, IsOfTheStepThatWasTaken) {
  const auto gpu = Must(Stage::Create(Options(kGpu)));
  Train(gpu.get(), 1);
  const StageSnapshot first = Must(gpu->Snapshot());
  EXPECT_EQ(first.step, 1u);
  const std::vector<int32_t> ids(64, 3), targets(64, 5);
  Must(gpu->Forward(Microbatch(0), {ids, {}, targets}));
  ExpectSame(Must(gpu->Snapshot()), first);
  Must(gpu->Backward(Microbatch(0), {}));
  ExpectSame(Must(gpu->Snapshot()), first);
  ASSERT_TRUE(gpu->OptimizerStep(Step(2), 1e-3, 1).ok());
  const StageSnapshot second = Must(gpu->Snapshot());
  EXPECT_EQ(second.step, 2u);
  for (size_t k = 0; k < first.parameters.size(); ++k) {
    const std::string& name = first.parameters[k].name;
    if (name.find("attn.qkv.weight") == std::string::npos) continue;
    EXPECT_FALSE(first.parameters[k].values == second.parameters[k].values) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Moments, SnapshotOnGpu,
                         ::testing::Values(MomentDtype::kFp32, MomentDtype::kBf16),
                         [](const auto& moments) {
                           return moments.param == MomentDtype::kFp32 ? "fp32" : "bf16";
                         });

}  // namespace
}  // namespace longhaul::testing
