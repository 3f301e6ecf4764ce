#include <gtest/gtest.h>

#include "tests/support/fuzz_smoke.h"

namespace longhaul::coordinator {
namespace {

std::string Put(uint32_t offset, uint8_t byte) {
  return {static_cast<char>(offset & 0xff), static_cast<char>(offset >> 8 & 0xff),
          static_cast<char>(offset >> 16), static_cast<char>(byte)};
}

TEST(StoreFuzzSmokeTest, DamagedFiles) {
  testing::FuzzSmoke({Put(0xffffff, 16), Put(100, 5) + Put(0x800010, 7), Put(4096, 0xff),
                      Put(8192, 2) + Put(12288, 10), Put(60, 1) + Put(18, 2)},
                     300);
}

}  // namespace
}  // namespace longhaul::coordinator
