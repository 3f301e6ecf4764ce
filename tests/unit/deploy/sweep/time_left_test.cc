#include "deploy/sweep/time_left.h"

#include <gtest/gtest.h>

namespace longhaul::cli {
namespace {

TEST(TimeLeft, CountsNetworkAndWhatPointsTookBeyond) {
  TimeLeft left;
  for (const double network : {10.0, 20.0, 40.0}) left.AddWaiting(network);
  left.Begin(10);
  EXPECT_EQ(left.Estimate(5.0), std::nullopt);  // nothing has ended that others could be like
  left.Ended(10, 13);
  left.Begin(20);
  EXPECT_EQ(left.Estimate(std::nullopt), std::nullopt);
  EXPECT_DOUBLE_EQ(*left.Estimate(6.0), 6 + 40 + 3);
  left.Ended(20, 21);
  left.Begin(40);
  EXPECT_DOUBLE_EQ(*left.Estimate(7.0), 7);
}

TEST(TimeLeft, TheOnlyPointIsKnownAtOnce) {
  TimeLeft left;
  left.AddWaiting(10);
  left.Begin(10);
  EXPECT_DOUBLE_EQ(*left.Estimate(8.0), 8);
}

}  // namespace
}  // namespace longhaul::cli
