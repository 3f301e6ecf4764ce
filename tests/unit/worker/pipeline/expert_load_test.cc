#include "worker/pipeline/expert_load.h"

#include <gtest/gtest.h>

namespace longhaul::worker {
namespace {

TEST(ExpertLoad, IsTheMostOverTheMeanOfEachBlock) {
  const auto load = ExpertLoadOf({{5, 5, 5, 5}, {9, 1, 1, 1}, {0, 4, 4, 4}}, 6);
  ASSERT_TRUE(load.has_value());
  EXPECT_DOUBLE_EQ(load->highest(), 3);
  EXPECT_EQ(load->layer(), 7u);
  EXPECT_DOUBLE_EQ(load->mean(), (1 + 3 + 4.0 / 3) / 3);
}

TEST(ExpertLoad, IsOneWhereAllAreEquallyBusyAndAsManyAsThereAreWhereOneIs) {
  EXPECT_DOUBLE_EQ(ExpertLoadOf({{7, 7}}, 0)->highest(), 1);
  EXPECT_DOUBLE_EQ(ExpertLoadOf({{0, 0, 8, 0}}, 0)->highest(), 4);
  // The first of two equally loaded blocks is reported.
  EXPECT_EQ(ExpertLoadOf({{3, 1}, {1, 3}}, 2)->layer(), 2u);
}

TEST(ExpertLoad, IsNothingWithoutExpertsOrTokens) {
  EXPECT_FALSE(ExpertLoadOf({}, 0).has_value());
  EXPECT_FALSE(ExpertLoadOf({{0, 0}}, 0).has_value());
}

}  // namespace
}  // namespace longhaul::worker
