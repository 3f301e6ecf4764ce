#include "cli/patience.h"

#include <gtest/gtest.h>

namespace longhaul::cli {
namespace {

const MonoTime kBegin = MonoTime() + absl::Hours(1000);

TEST(PatienceTest, CountsFromWhenContactWasLost) {
  Patience patience(absl::Minutes(5));
  patience.Heard();
  EXPECT_FALSE(patience.is_away());
  // After a night without a message, the first call that finds nobody is the beginning.
  const MonoTime lost = kBegin + absl::Hours(8);
  EXPECT_TRUE(patience.Lasts(lost));
  EXPECT_TRUE(patience.is_away());
  EXPECT_TRUE(patience.Lasts(lost + absl::Minutes(5)));
  EXPECT_FALSE(patience.Lasts(lost + absl::Minutes(5) + absl::Seconds(1)));
}

TEST(PatienceTest, BeginsAnewAfterAMessage) {
  Patience patience(absl::Minutes(5));
  EXPECT_TRUE(patience.Lasts(kBegin));
  patience.Heard();
  EXPECT_FALSE(patience.is_away());
  EXPECT_TRUE(patience.Lasts(kBegin + absl::Minutes(6)));
  EXPECT_TRUE(patience.Lasts(kBegin + absl::Minutes(11)));
  EXPECT_FALSE(patience.Lasts(kBegin + absl::Minutes(12)));
}

}  // namespace
}  // namespace longhaul::cli
