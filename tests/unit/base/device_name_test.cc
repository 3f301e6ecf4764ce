#include "base/device_name.h"

#include <gmock/gmock.h>

#include <string>

namespace longhaul {
namespace {

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

}  // namespace
}  // namespace longhaul
