// What a worker says to --device where there is a GPU.
#include "tests/support/gpu_test.h"

#include <absl/strings/str_split.h>
#include <fmt/core.h>
#include <gmock/gmock.h>

#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/unit/worker/agent/worker_program.h"
#include "worker/measuring/device.h"

namespace longhaul::testing {
namespace {

using ::testing::HasSubstr;

// Its first words are of the address it listens at, which come when the GPU is open.
TEST(WorkerOnGpu, ServesOnIt) {
  const TempDir folder;
  const auto worker = StartWorkerOn("cuda:0", folder);
  EXPECT_TRUE(worker->WaitForOutput("data address", Deadline::After(absl::Minutes(2))))
      << worker->standard_error();
  worker->Signal(SIGTERM);
  EXPECT_EQ(worker->WaitForExit(Deadline::After(absl::Minutes(1))), 0) << worker->standard_error();
}

TEST(WorkerOnGpu, SaysWhatItMayPlanWithOfTheHostToo) {
  const auto whole = Must(worker::OpenDevice({0})), half = Must(worker::OpenDevice({0}, 0.5));
  const uint64_t host = Must(worker::OpenDevice({})).description.memory_bytes();
  EXPECT_EQ(whole.description.host_memory_bytes(), host);
  EXPECT_EQ(half.description.host_memory_bytes(), host / 2);
  EXPECT_NEAR(static_cast<double>(half.description.memory_bytes()),
              static_cast<double>(whole.description.memory_bytes()) / 2, 1);
}

TEST(WorkerOnGpu, NamesTheGpusThereAre) {
  int count = 0;
  ASSERT_EQ(Gpu().table().device_count(&count), 0);
  const Refusal refusal = RunWorkerOn(fmt::format("cuda:{}", count));
  EXPECT_EQ(refusal.exit_code, 1);
  EXPECT_THAT(refusal.sentence, HasSubstr(fmt::format("cuda:0 to cuda:{}", count - 1)));
}

// The last of the GPUs that this process sees, in the words of CUDA_VISIBLE_DEVICES.
std::string LastVisible() {
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible != nullptr) {
    const std::vector<std::string> listed = absl::StrSplit(visible, ',');
    return listed.back();
  }
  int count = 0;
  EXPECT_EQ(Gpu().table().device_count(&count), 0);
  return std::to_string(count - 1);
}

TEST(WorkerOnGpu, NumbersTheGpusThatItIsShownFromZero) {
  const std::string last = LastVisible();
  const TempDir folder;
  const auto worker = StartWorkerOn("cuda:0", folder, last);
  EXPECT_TRUE(worker->WaitForOutput("data address", Deadline::After(absl::Minutes(2))))
      << worker->standard_error();
  worker->Signal(SIGTERM);
  EXPECT_EQ(worker->WaitForExit(Deadline::After(absl::Minutes(1))), 0) << worker->standard_error();
  const Refusal refusal = RunWorkerOn("cuda:1", last);
  EXPECT_EQ(refusal.exit_code, 1);
  EXPECT_THAT(refusal.sentence, HasSubstr("cuda:0 to cuda:0"));
  EXPECT_FALSE(refusal.made_state);
}

TEST(WorkerOnGpu, SaysThatItIsShownNoGpu) {
  const Refusal refusal = RunWorkerOn("cuda:0", "");
  EXPECT_EQ(refusal.exit_code, 1);
  EXPECT_THAT(refusal.sentence, HasSubstr("CUDA_VISIBLE_DEVICES"));
}

}  // namespace
}  // namespace longhaul::testing
