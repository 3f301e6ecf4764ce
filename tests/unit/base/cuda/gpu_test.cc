// What the CUDA module does on a real device.
#include "tests/support/gpu_test.h"

#include <gmock/gmock.h>

#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "base/cuda/device_check.h"
#include "base/cuda/memory.h"
#include "base/cuda/pattern.h"
#include "base/cuda/stream.h"

namespace longhaul::cuda {
namespace {

using ::longhaul::testing::Await;
using ::longhaul::testing::Gpu;
using ::longhaul::testing::Must;

Deadline Patience() {
  return Deadline::After(absl::Minutes(1));
}

Status ScrambleOn(const Stream& stream, DeviceBuffer* words, uint64_t count, uint32_t seed) {
  return Gpu().Check(
      Gpu().table().scramble(Gpu().index(), static_cast<uint32_t*>(words->data_dev()), count, seed,
                             stream.handle()),
      "scrambling");
}

std::span<uint32_t> Words(PinnedBuffer* buffer) {
  return {reinterpret_cast<uint32_t*>(buffer->span().data()),
          buffer->span().size() / sizeof(uint32_t)};
}

TEST(Gpu, IsDescribed) {
  EXPECT_NE(Gpu().info().name[0], '\0');
  EXPECT_GE(Gpu().info().major, kMinimumMajor);
  EXPECT_GT(Gpu().info().multiprocessors, 0);
  EXPECT_GT(Gpu().info().memory_bytes, uint64_t{1} << 30);
}

TEST(Gpu, OneIndexTooManyIsRefused) {
  int count = 0;
  ASSERT_EQ(Gpu().table().device_count(&count), 0);
  for (int index = 0; index < count; ++index) {
    EXPECT_TRUE(Device::Open(&Gpu().table(), static_cast<uint32_t>(index)).ok());
  }
  EXPECT_EQ(Device::Open(&Gpu().table(), static_cast<uint32_t>(count)).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(Gpu, PassesTheCheck) {
  const Status status = CheckDevice(Gpu(), Patience());
  EXPECT_TRUE(status.ok()) << status;
}

TEST(Gpu, AnEventThatRecordedNothingIsDone) {
  EXPECT_TRUE(Must(Event::Create(Gpu())).Await(Deadline::After(absl::ZeroDuration())).ok());
}

// Counts around the sizes of a warp, a block and the whole grid. The word after the last keeps its
// value.
TEST(Gpu, KernelsComputeWhatTheHostDoes) {
  Stream stream = Must(Stream::Create(Gpu()));
  std::mt19937_64 random(std::random_device{}());
  for (const uint64_t count : {uint64_t{0}, uint64_t{1}, uint64_t{31}, uint64_t{256}, uint64_t{257},
                               uint64_t{4096} * 256 + 1, uint64_t{10'000'019}}) {
    const size_t bytes = (count + 1) * sizeof(uint32_t);
    PinnedBuffer in = Must(PinnedBuffer::Create(Gpu(), bytes));
    PinnedBuffer out = Must(PinnedBuffer::Create(Gpu(), bytes));
    DeviceBuffer words = Must(DeviceBuffer::Create(Gpu(), bytes));
    for (uint32_t& word : Words(&in)) word = static_cast<uint32_t>(random());
    const auto seed = static_cast<uint32_t>(random());
    std::memset(out.span().data(), 0x5a, bytes);
    ASSERT_TRUE(stream.Copy(words.data_dev(), in.span().data(), bytes).ok());
    ASSERT_TRUE(ScrambleOn(stream, &words, count, seed).ok());
    ASSERT_TRUE(stream.Copy(out.span().data(), words.data_dev(), bytes).ok());
    Await(stream);
    for (uint64_t k = 0; k < count; ++k) {
      ASSERT_EQ(Words(&out)[k], Scramble(Words(&in)[k], k, seed)) << k << " of " << count;
    }
    EXPECT_EQ(Words(&out)[count], Words(&in)[count]);
  }
}

// A copy on one stream that waits for many kernels on another.
TEST(Gpu, AStreamWaitsForAnEventOfAnother) {
  constexpr uint64_t kWords = 8 << 20;
  constexpr uint32_t kRounds = 64;
  PinnedBuffer host = Must(PinnedBuffer::Create(Gpu(), kWords * sizeof(uint32_t)));
  DeviceBuffer words = Must(DeviceBuffer::Create(Gpu(), kWords * sizeof(uint32_t)));
  Stream kernels = Must(Stream::Create(Gpu()));
  Stream copies = Must(Stream::Create(Gpu()));
  Event computed = Must(Event::Create(Gpu()));
  std::memset(host.span().data(), 0, host.span().size());
  ASSERT_TRUE(kernels.Copy(words.data_dev(), host.span().data(), host.span().size()).ok());
  for (uint32_t seed = 0; seed < kRounds; ++seed) {
    ASSERT_TRUE(ScrambleOn(kernels, &words, kWords, seed).ok());
  }
  ASSERT_TRUE(computed.Record(kernels).ok());
  ASSERT_TRUE(copies.WaitFor(computed).ok());
  ASSERT_TRUE(copies.Copy(host.span().data(), words.data_dev(), host.span().size()).ok());
  Await(copies);
  for (uint64_t k = 0; k < kWords; k += 4099) {
    uint32_t expected = 0;
    for (uint32_t seed = 0; seed < kRounds; ++seed) expected = Scramble(expected, k, seed);
    ASSERT_EQ(Words(&host)[k], expected) << k;
  }
}

// The failure must not stick to the device or to the thread.
TEST(Gpu, TooMuchMemoryIsRefusedAndTheDeviceGoesOn) {
  const Status status = DeviceBuffer::Create(Gpu(), Gpu().info().memory_bytes * 2).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_TRUE(CheckDevice(Gpu(), Patience()).ok());
}

TEST(Gpu, ThreadsUseItSideBySide) {
  std::vector<Status> statuses(4);
  std::vector<std::thread> threads;
  threads.reserve(statuses.size());
  for (Status& status : statuses) {
    threads.emplace_back([&status] { status = CheckDevice(Gpu(), Patience()); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
}

}  // namespace
}  // namespace longhaul::cuda
