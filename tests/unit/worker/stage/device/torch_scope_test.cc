#include "worker/stage/device/torch_scope.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>
#include <stdexcept>
#include <string>
#include <thread>

#include "base/cuda/device_lost.h"

namespace longhaul::worker {
namespace {

using ::testing::HasSubstr;

TEST(CallTorch, TheNumberOfThreadsHoldsOnWhicheverThreadCalls) {
  const auto threads_in_call = [](uint32_t threads) {
    int seen = 0;
    const Status status = CallTorch("test", threads, [&] {
      seen = at::get_num_threads();
      return absl::OkStatus();
    });
    EXPECT_TRUE(status.ok()) << status;
    return seen;
  };
  EXPECT_EQ(threads_in_call(1), 1);
  int elsewhere = 0;
  std::thread([&] { elsewhere = threads_in_call(2); }).join();
  EXPECT_EQ(elsewhere, 2);
  EXPECT_EQ(threads_in_call(1), 1);
  EXPECT_EQ(at::get_num_interop_threads(), 1);
}

TEST(CallTorch, TurnsExceptionsIntoStatus) {
  const Status internal =
      CallTorch("adding", 1, []() -> Status { throw std::runtime_error("odd"); });
  EXPECT_EQ(internal.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(Message(internal), "adding: odd");
  const Status memory = CallTorch("adding", 1, []() -> Status { throw std::bad_alloc(); });
  EXPECT_EQ(memory.code(), absl::StatusCode::kResourceExhausted);
  const Status passed = CallTorch("adding", 1, [] { return absl::AbortedError("as it is"); });
  EXPECT_EQ(Message(passed), "as it is");
}

TEST(CallTorch, KnowsAGpuThatIsLost) {
  const auto thrown = [](const char* words) {
    return CallTorch("forward", 1, [&]() -> Status { throw std::runtime_error(words); });
  };
  EXPECT_TRUE(cuda::IsDeviceLost(thrown("CUDA error: unspecified launch failure")));
  EXPECT_FALSE(cuda::IsDeviceLost(thrown("CUDA error: invalid argument")));
}

TEST(CallTorch, KnowsLibTorchsOwnOutOfMemory) {
  const Status status = CallTorch("forward", 1, []() -> Status {
    at::empty({int64_t{1} << 50});  // 4 PiB: more than an address space has.
    return absl::OkStatus();
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(Message(status)), HasSubstr("pipeline.recompute"));
}

}  // namespace
}  // namespace longhaul::worker
