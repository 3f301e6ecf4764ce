#include <gtest/gtest.h>

#include <vector>

#include "tests/support/fuzz_smoke.h"
#include "worker/checkpoint/safetensors.h"

namespace longhaul::worker {
namespace {

TEST(SafetensorsFuzzSmokeTest, DamagedFiles) {
  std::string header =
      R"({"__metadata__":{"step":"3"},"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]}})";
  std::string file(8, '\0');
  file[0] = static_cast<char>(header.size());
  file += header + std::string(8, '\1');
  ASSERT_TRUE(ParseSafetensors(std::as_bytes(std::span(file))).ok());
  testing::FuzzSmoke({file}, 20'000, "{}[]:,\"0123456789F");
}

}  // namespace
}  // namespace longhaul::worker
