// What a worker says to --device, on machines with a GPU and without.
#include "worker/measuring/device.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <vector>

#include "tests/unit/worker/agent/worker_program.h"

namespace longhaul::worker {
namespace {

using ::longhaul::testing::Refusal;
using ::longhaul::testing::RunWorkerOn;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(Device, TheCpuIsDescribed) {
  const StatusOr<WorkerDevice> device = OpenDevice({});
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ(device->gpu, std::nullopt);
  EXPECT_EQ(device->description.kind(), "cpu");
  EXPECT_GT(device->description.cores(), 0);
  EXPECT_GT(device->description.memory_bytes(), 0);
  EXPECT_EQ(device->description.host_memory_bytes(), 0) << "it is the device's";
}

TEST(Device, RanksOnTheCpuShareTheMachine) {
  const WorkerDevice whole = OpenDevice({}).value();
  const auto devices = OpenDevices(std::vector<DeviceName>(3)).value();
  ASSERT_EQ(devices.size(), 3u);
  uint64_t memory = 0;
  uint32_t cores = 0;
  for (const WorkerDevice& device : devices) {
    EXPECT_EQ(device.description.name(), whole.description.name());
    memory += device.description.memory_bytes();
    cores += device.description.cores();
    EXPECT_GE(device.description.cores(), 1u);
  }
  EXPECT_LE(memory, whole.description.memory_bytes());
  EXPECT_GT(memory, whole.description.memory_bytes() - 10);
  EXPECT_EQ(cores, std::max(whole.description.cores(), 3u));
}

TEST(Device, NoWorkerStartsOnAGpu) {
  const Refusal refusal = RunWorkerOn("cuda");
  EXPECT_EQ(refusal.exit_code, 1);
  EXPECT_THAT(refusal.sentence, StartsWith("longhaul-worker: --device cuda: "));
  EXPECT_FALSE(refusal.made_state);
}

TEST(Device, AnUnknownOneIsWrongUsage) {
  for (const char* name : {"tpu", "cuda:", "cuda:-1", "cuda:3-1", "cpu,"}) {
    const Refusal refusal = RunWorkerOn(name);
    EXPECT_EQ(refusal.exit_code, 2);
    EXPECT_THAT(refusal.sentence,
                HasSubstr("--device: expected cpu, cuda, cuda:N or a range of GPUs"));
    EXPECT_FALSE(refusal.made_state);
  }
}

}  // namespace
}  // namespace longhaul::worker
