#include <gtest/gtest.h>

#include "tests/support/fuzz_smoke.h"

namespace longhaul {
namespace {

TEST(UnitsFuzzSmokeTest, DamagedQuantities) {
  testing::FuzzSmoke({"100mbit", "1.5s", "2m30s", "64KiB", "18446744073709551615", "cuda:1", "0"},
                     50'000, "0123456789. mskibtKMGTu:-");
}

}  // namespace
}  // namespace longhaul
