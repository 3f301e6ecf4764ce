#include <gtest/gtest.h>

#include "tests/support/fuzz_smoke.h"

namespace longhaul {
namespace {

TEST(DaemonConfigFuzzSmokeTest, DamagedFiles) {
  testing::FuzzSmoke({"listen: 127.0.0.1:7070\nlimit: 3\n", "advertise: [a:1, b:2]\ndump: true\n",
                      "dump: false\nlimit: '5'\nadvertise: one\n"},
                     5'000, "{}[]:,'\"\n -&*!|>%#trueols0123");
}

}  // namespace
}  // namespace longhaul
