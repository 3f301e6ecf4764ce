#include "base/device_name.h"

#include <gmock/gmock.h>

#include <string>

namespace longhaul {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(DeviceName, NamesTheCpuAndGpus) {
  EXPECT_EQ(ParseDeviceName("cpu")->cuda_index, std::nullopt);
  EXPECT_EQ(ParseDeviceName("cuda")->cuda_index, 0);
  EXPECT_EQ(ParseDeviceName("cuda:0")->cuda_index, 0);
  EXPECT_EQ(ParseDeviceName("cuda:17")->cuda_index, 17);
  EXPECT_EQ(ParseDeviceName("cuda:2147483647")->cuda_index, 2147483647);
}

TEST(DeviceName, RefusesTheRest) {
  for (const char* text :
       {"", "CPU", "gpu", "cuda0", "cuda:", "cuda:-1", "cuda:+1", "cuda: 1", "cuda:1 ", "cuda:1x",
        "cuda:2147483648", "cuda:99999999999999999999", "cuda:0:1", "cpu:0"}) {
    const Status status = ParseDeviceName(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(Message(status)), HasSubstr("cuda:N"));
    EXPECT_THAT(std::string(Message(status)), HasSubstr("'" + std::string(text) + "'"));
  }
}

TEST(DeviceName, IsWrittenAsItIsRead) {
  for (const char* text : {"cpu", "cuda:0", "cuda:17"}) {
    EXPECT_EQ(ToString(ParseDeviceName(text).value()), text);
  }
}

TEST(DeviceNames, AreOneOrARangeOrAList) {
  const auto gpu = [](uint32_t index) { return DeviceName{.cuda_index = index}; };
  EXPECT_THAT(ParseDeviceNames("cpu").value(), ElementsAre(DeviceName()));
  EXPECT_THAT(ParseDeviceNames("cuda").value(), ElementsAre(gpu(0)));
  EXPECT_THAT(ParseDeviceNames("cuda:3").value(), ElementsAre(gpu(3)));
  EXPECT_THAT(ParseDeviceNames("cuda:1-3").value(), ElementsAre(gpu(1), gpu(2), gpu(3)));
  EXPECT_THAT(ParseDeviceNames("cuda:0-1,cuda:3").value(), ElementsAre(gpu(0), gpu(1), gpu(3)));
  EXPECT_THAT(ParseDeviceNames("cpu,cpu").value(), ElementsAre(DeviceName(), DeviceName()));
  for (const char* text :
       {"", "tpu", "cuda:", "cuda:-1", "cuda:3-1", "cuda:0-x", "cuda:0-4294967295", "cuda:0-9999",
        "cpu,", ",cpu", "cpu,,cpu", "cuda:0-1,cuda:1", "cuda,cuda:0", "cpu,cuda:0",
        "cuda:0-1000,cuda:1001-1024"}) {
    const Status status = ParseDeviceNames(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(Message(status)), HasSubstr("'" + std::string(text) + "'"));
  }
}

TEST(SharedDevices, AreGivenInTurn) {
  const auto share = [](const char* text) { return ShareDevices(text, 3).value(); };
  EXPECT_THAT(share("cpu"), ElementsAre("cpu", "cpu", "cpu"));
  EXPECT_THAT(share("cuda"), ElementsAre("cuda:0", "cuda:1", "cuda:2"));
  EXPECT_THAT(share("cuda:5"), ElementsAre("cuda:5", "cuda:5", "cuda:5"));
  EXPECT_THAT(share("cuda:0-1"), ElementsAre("cuda:0", "cuda:1", "cuda:0"));
  EXPECT_THAT(share("cuda:2-2"), ElementsAre("cuda:2", "cuda:2", "cuda:2"));
  EXPECT_THAT(share("cuda:4-2147483647"), ElementsAre("cuda:4", "cuda:5", "cuda:6"));
  EXPECT_THAT(ShareDevices("cuda", 0).value(), ElementsAre());
}

TEST(SharedDevices, AWorkerMayHaveSeveral) {
  const auto share = [](const char* text) { return ShareDevices(text, 2, 2).value(); };
  EXPECT_THAT(share("cpu"), ElementsAre("cpu,cpu", "cpu,cpu"));
  EXPECT_THAT(share("cuda"), ElementsAre("cuda:0,cuda:1", "cuda:2,cuda:3"));
  EXPECT_THAT(share("cuda:4-6"), ElementsAre("cuda:4,cuda:5", "cuda:6,cuda:4"));
  EXPECT_THAT(std::string(Message(ShareDevices("cuda:1", 2, 2).status())),
              HasSubstr("expected every GPU once, got cuda:1 twice"));
}

TEST(SharedDevices, AreNamedOrRefused) {
  for (const char* text : {"cuda:3-2", "cuda:-", "cuda:0-", "cuda:-1", "cuda:0-1-2", "cuda:0-x",
                           "cuda:0-4294967296"}) {
    const Status status = ShareDevices(text, 2).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(Message(status)), HasSubstr("cuda:0-3, got '" + std::string(text)));
  }
  EXPECT_THAT(std::string(Message(ShareDevices("tpu", 2).status())), HasSubstr("'tpu'"));
}

}  // namespace
}  // namespace longhaul
