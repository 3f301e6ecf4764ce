// Refusals and faults, on a device table that computes on the host.
#include "base/cuda/device.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <cstring>
#include <optional>
#include <set>
#include <string>

#include "base/cuda/device_check.h"
#include "base/cuda/device_lost.h"
#include "base/cuda/memory.h"
#include "base/cuda/pattern.h"
#include "base/cuda/stream.h"

namespace longhaul::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kFault = 700;

// The table's functions are plain pointers, so what they act on is global.
struct FakeGpu {
  int driver_version = 13000;
  int count = 2;
  int major = 9, minor = 0;
  bool hangs = false;
  // The word that the kernel gets wrong.
  std::optional<uint64_t> wrong_word;
  // The call that fails, and with what.
  std::string faulty;
  int fault = kFault;
  std::set<void*> live;
};
FakeGpu fake;

int Code(const char* call) {
  return fake.faulty == call ? fake.fault : 0;
}

int Make(const char* call, size_t bytes, void** made) {
  if (Code(call) != 0) return fake.fault;
  *made = std::malloc(bytes);
  fake.live.insert(*made);
  return 0;
}

int Destroy(void* made) {
  EXPECT_EQ(fake.live.erase(made), 1);
  std::free(made);
  return 0;
}

const DeviceTable kTable = {
    .version = kTableVersion,
    .runtime_version = 13000,
    .error_text = [](int) { return "an illegal memory access was encountered"; },
    .driver_version = [](int* version) { return *version = fake.driver_version, Code("driver"); },
    .device_count = [](int* count) { return *count = fake.count, Code("count"); },
    .describe =
        [](int, DeviceInfo* info) {
          *info = {"Test GPU", fake.major, fake.minor, 132, 80'000'000'000};
          return Code("describe");
        },
    .stream_create = [](int, void** stream) { return Make("stream", 1, stream); },
    .stream_destroy = Destroy,
    .event_create = [](int, bool, void** event) { return Make("event", 1, event); },
    .event_destroy = Destroy,
    .event_record = [](void*, void*) { return Code("record"); },
    .event_query = [](void*, bool* done) { return *done = !fake.hangs, Code("query"); },
    .stream_wait = [](void*, void*) { return Code("wait"); },
    .allocate = [](int, size_t bytes, void** memory) { return Make("allocate", bytes, memory); },
    .free = Destroy,
    .allocate_pinned = [](int, size_t bytes, void** memory) { return Make("pin", bytes, memory); },
    .free_pinned = Destroy,
    .copy =
        [](void* to, const void* from, size_t bytes, void*) {
          std::memcpy(to, from, bytes);
          return Code("copy");
        },
    .scramble =
        [](int, uint32_t* words, uint64_t count, uint32_t seed, void*) {
          for (uint64_t k = 0; k < count; ++k) words[k] = Scramble(words[k], k, seed);
          if (fake.wrong_word.has_value()) words[*fake.wrong_word] ^= 1;
          return Code("kernel");
        },
};

class DeviceTest : public ::testing::Test {
 protected:
  DeviceTest() { fake = {}; }
  ~DeviceTest() override {
    for (void* made : fake.live) std::free(made);
  }
  static void ExpectRefused(uint32_t index, absl::StatusCode code,
                            const ::testing::Matcher<std::string>& sentence) {
    const Status status = Device::Open(&kTable, index).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(Message(status)), sentence);
  }
  static Status Check() {
    return CheckDevice(*Device::Open(&kTable, 0), Deadline::After(absl::Minutes(1)));
  }
};

TEST_F(DeviceTest, SaysWhatItIs) {
  const StatusOr<Device> device = Device::Open(&kTable, 1);
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ(device->Name(), "cuda:1 (Test GPU)");
  EXPECT_EQ(device->Describe(),
            "cuda:1: Test GPU, compute capability 9.0, 132 multiprocessors, 80 GB, driver for "
            "CUDA 13.0, runtime 13.0");
}

TEST_F(DeviceTest, NoDriver) {
  fake.driver_version = 0;
  ExpectRefused(0, absl::StatusCode::kFailedPrecondition,
                AllOf(HasSubstr("expected an NVIDIA driver for CUDA 13.0 or newer"),
                      HasSubstr("found none"), HasSubstr("use the CPU")));
}

TEST_F(DeviceTest, AnOldDriver) {
  fake.driver_version = 12040;
  ExpectRefused(0, absl::StatusCode::kFailedPrecondition,
                AllOf(HasSubstr("13.0 or newer"), HasSubstr("12.4"), HasSubstr("update")));
}

TEST_F(DeviceTest, ANewerDriver) {
  fake.driver_version = 14020;
  EXPECT_TRUE(Device::Open(&kTable, 0).ok());
}

TEST_F(DeviceTest, NoGpu) {
  fake.count = 0;
  ExpectRefused(0, absl::StatusCode::kFailedPrecondition,
                AllOf(HasSubstr("expected a GPU"), HasSubstr("CUDA_VISIBLE_DEVICES")));
}

TEST_F(DeviceTest, AnIndexOutOfRange) {
  ExpectRefused(2, absl::StatusCode::kInvalidArgument,
                AllOf(HasSubstr("from cuda:0 to cuda:1"), HasSubstr("got cuda:2")));
}

TEST_F(DeviceTest, AnOldGpu) {
  fake.major = 7;
  fake.minor = 5;
  ExpectRefused(0, absl::StatusCode::kFailedPrecondition,
                AllOf(HasSubstr("compute capability 8.0 or newer"), HasSubstr("Test GPU"),
                      HasSubstr("has 7.5")));
}

TEST_F(DeviceTest, AFaultNamesTheCallAndTheCode) {
  for (const char* call : {"driver", "count", "describe"}) {
    fake.faulty = call;
    ExpectRefused(0, absl::StatusCode::kInternal,
                  AllOf(HasSubstr("cuda:0"), HasSubstr("illegal memory access"), HasSubstr("700")));
  }
}

TEST_F(DeviceTest, TheCheckPassesAndLeavesNothingBehind) {
  EXPECT_TRUE(Check().ok()) << Check();
  EXPECT_TRUE(fake.live.empty());
}

TEST_F(DeviceTest, TheCheckFindsOneWrongWord) {
  fake.wrong_word = 123457;
  const Status status = Check();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(Message(status)),
              AllOf(HasSubstr("cuda:0 (Test GPU)"), HasSubstr("word 123457")));
}

TEST_F(DeviceTest, TheCheckReportsWhateverFails) {
  for (const char* call :
       {"stream", "event", "record", "query", "wait", "copy", "kernel", "allocate", "pin"}) {
    fake.faulty = call;
    const Status status = Check();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << call;
    EXPECT_TRUE(IsDeviceLost(status)) << call;
    EXPECT_THAT(std::string(Message(status)), HasSubstr("illegal memory access"));
    EXPECT_TRUE(fake.live.empty()) << call;
  }
}

TEST_F(DeviceTest, ABorrowedStreamIsTheOwners) {
  const Device device = *Device::Open(&kTable, 0);
  const Stream owner = *Stream::Create(device);
  {
    Stream borrowed = Stream::Borrow(device, owner.handle());
    EXPECT_EQ(borrowed.handle(), owner.handle());
    int word = 0;
    const int from = 5;
    EXPECT_TRUE(borrowed.Copy(&word, &from, sizeof(word)).ok());
    EXPECT_EQ(word, 5);
    EXPECT_EQ(Stream::Borrow(device, nullptr).handle(), nullptr) << "the default stream";
  }
  EXPECT_EQ(fake.live.size(), 1) << "the owner's";
}

TEST_F(DeviceTest, ErrorsThatStickAreToldFromThoseThatDoNot) {
  const Device device = *Device::Open(&kTable, 0);
  for (const int code : {214, 220, 700, 702, 710, 714, 715, 716, 717, 718, 719, 999}) {
    const Status status = device.Check(code, "launching a kernel");
    EXPECT_TRUE(IsDeviceLost(status)) << code;
    EXPECT_TRUE(IsDeviceLost(Annotate(status, "encoding"))) << "the mark stays";
  }
  // Invalid values, no memory, not ready, a launch that asks for too much.
  for (const int code : {1, 2, 101, 600, 701, 720}) {
    EXPECT_FALSE(IsDeviceLost(device.Check(code, "launching a kernel"))) << code;
  }
  EXPECT_FALSE(IsDeviceLost(absl::OkStatus()));
}

TEST_F(DeviceTest, NoMemoryIsALimitAndNoFaultOfTheDevice) {
  fake.fault = 2;
  for (const char* call : {"allocate", "pin"}) {
    fake.faulty = call;
    const Status status = Check();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << call;
    EXPECT_FALSE(IsDeviceLost(status));
  }
}

TEST_F(DeviceTest, WhatLibrariesThrowIsToldByItsWords) {
  EXPECT_TRUE(
      LosesDevice("CUDA error: an illegal memory access was encountered\nCUDA kernel errors "
                  "might be asynchronously reported"));
  EXPECT_TRUE(LosesDevice("CUDA error: unspecified launch failure"));
  EXPECT_FALSE(LosesDevice("CUDA error: out of memory"));
  EXPECT_FALSE(LosesDevice("expected a tensor, got misaligned address"));
}

// Freeing memory waits for the device, so what a hanging one still uses is not freed.
TEST_F(DeviceTest, TheCheckGivesUpOnADeviceThatHangs) {
  fake.hangs = true;
  const Status status =
      CheckDevice(*Device::Open(&kTable, 0), Deadline::After(absl::ZeroDuration()));
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(fake.live.empty());
}

}  // namespace
}  // namespace longhaul::cuda
