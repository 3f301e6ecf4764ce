#include "base/philox.h"

#include <gtest/gtest.h>

namespace longhaul {
namespace {

// The known answers of the generator's authors. What is drawn stays what it was: checkpoints and
// stochastic rounding depend on every bit.
TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_EQ(Philox::Generate({0, 0, 0, 0}, {0, 0}),
            (Philox::Counter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox::Generate({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (Philox::Counter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(
      Philox::Generate({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
      (Philox::Counter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, UnitsAreBelowOne) {
  EXPECT_EQ(Philox::ToUnit(0), 0.0f);
  EXPECT_EQ(Philox::ToUnit(255), 0.0f);
  EXPECT_EQ(Philox::ToUnit(~0u), 1.0f - 0x1p-24f);
}

}  // namespace
}  // namespace longhaul
