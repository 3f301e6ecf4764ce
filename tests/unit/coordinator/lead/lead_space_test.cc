// Each case has limits within which the space is searched whole.
#include "tests/unit/coordinator/lead/lead_space.h"

#include <gtest/gtest.h>

namespace longhaul::coordinator {
namespace {

void Expect(SpaceStart start, const SpaceLimits& limits) {
  const SpaceResult result = SearchSpace(start, limits);
  EXPECT_EQ(result.violation, "");
  EXPECT_TRUE(result.complete) << result.states << " states, depth " << result.depth;
  EXPECT_GT(result.commits, 0u);
  EXPECT_GT(result.leaders, 0u);
  ::testing::Test::RecordProperty("states", static_cast<int>(result.states));
}

TEST(LeadSpaceTest, APairThatIsCut) {
  Expect(SpaceStart::kPair, {.elections = 1, .changes = 1, .crashes = 1, .shrinks = 2, .grows = 0});
}

TEST(LeadSpaceTest, OneComesBack) {
  Expect(SpaceStart::kAlone,
         {.elections = 1, .changes = 1, .crashes = 1, .shrinks = 1, .grows = 1});
}

TEST(LeadSpaceTest, BothStart) {
  Expect(SpaceStart::kCold,
         {.elections = 2, .votes = 1, .changes = 0, .crashes = 0, .shrinks = 1, .grows = 0});
}

TEST(LeadSpaceTest, DeepAnOldImageIsPutBack) {
  Expect(SpaceStart::kPair,
         {.elections = 1, .changes = 1, .crashes = 0, .shrinks = 1, .grows = 0, .restores = 1});
}

TEST(LeadSpaceTest, DeepAPairThatIsCutAndHeals) {
  Expect(SpaceStart::kPair,
         {.elections = 1, .changes = 1, .crashes = 0, .shrinks = 1, .grows = 1, .reminders = 1});
}

TEST(LeadSpaceTest, DeepOneComesBack) {
  Expect(SpaceStart::kAlone,
         {.elections = 1, .changes = 1, .crashes = 1, .shrinks = 1, .grows = 1, .reminders = 1});
}

TEST(LeadSpaceTest, DeepTwoElections) {
  Expect(SpaceStart::kPair, {.elections = 2, .changes = 0, .crashes = 1, .shrinks = 2, .grows = 0});
}

TEST(LeadSpaceTest, DeepBothStart) {
  Expect(SpaceStart::kCold,
         {.elections = 2, .votes = 1, .changes = 0, .crashes = 0, .shrinks = 2, .grows = 1});
}

}  // namespace
}  // namespace longhaul::coordinator
