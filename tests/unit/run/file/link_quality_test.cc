#include "run/file/link_quality.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace longhaul {
namespace {

using ::testing::HasSubstr;

TEST(LinkQuality, RatesAreThoseOfTcOrUnlimited) {
  EXPECT_EQ(*ParseLinkRate("10mbit"), 10'000'000u);
  EXPECT_EQ(*ParseLinkRate("unlimited"), 0u);
  for (const char* text : {"", "0", "0bit", "10", "63kbit", "101gbit", "-1mbit", "fast"}) {
    const auto rate = ParseLinkRate(text);
    EXPECT_TRUE(absl::IsInvalidArgument(rate.status())) << text;
    EXPECT_THAT(std::string(Message(rate.status())), HasSubstr("unlimited"));
  }
}

TEST(LinkQuality, DelaysEndWhereNoLineIsThatLong) {
  EXPECT_EQ(*ParseLinkDelay("25ms"), absl::Milliseconds(25));
  EXPECT_EQ(*ParseLinkDelay("0"), absl::ZeroDuration());
  EXPECT_EQ(*ParseLinkDelay("10s"), kMaxLinkDelay);
  for (const char* text : {"", "25", "-1ms", "10.1s", "1h"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseLinkDelay(text).status())) << text;
  }
}

TEST(LinkQuality, LossIsAPercentage) {
  EXPECT_DOUBLE_EQ(*ParseLoss("0.1%"), 0.001);
  EXPECT_DOUBLE_EQ(*ParseLoss("99.9%"), 0.999);
  EXPECT_EQ(*ParseLoss("0"), 0);
  EXPECT_EQ(*ParseLoss("0%"), 0);
  for (const char* text : {"", "%", "0.1", "1", "-1%", "101%", "nan%", "inf%", "1%%", "1 %"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseLoss(text).status())) << text;
  }
  EXPECT_THAT(std::string(Message(ParseLoss("100%").status())), HasSubstr("--down"));
}

TEST(LinkQuality, NothingArrivesBeforeItWasSent) {
  EXPECT_TRUE(CheckLinkQuality({absl::Milliseconds(2), absl::Milliseconds(2), 0}).ok());
  EXPECT_TRUE(
      absl::IsInvalidArgument(CheckLinkQuality({absl::Milliseconds(2), absl::Milliseconds(3), 0})));
}

TEST(LinkQuality, TheWorseEndCounts) {
  const LinkQuality far{absl::Milliseconds(50), absl::Milliseconds(1), 0};
  const LinkQuality bad{absl::Milliseconds(5), absl::Milliseconds(3), 0.01};
  EXPECT_EQ(Worse(far, bad), (LinkQuality{absl::Milliseconds(50), absl::Milliseconds(3), 0.01}));
  EXPECT_EQ(Worse(bad, far), Worse(far, bad));
}

TEST(LinkQuality, AsPeopleReadIt) {
  EXPECT_EQ(FormatLinkQuality({}), "");
  EXPECT_EQ(FormatLinkQuality({absl::Milliseconds(25), absl::Milliseconds(2), 0.001}),
            "25 ms +- 2 ms, 0.1 % lost");
  EXPECT_EQ(FormatLinkQuality({{}, {}, 0.05}), "5 % lost");
  EXPECT_EQ(FormatLinkRate(0), "unlimited");
}

}  // namespace
}  // namespace longhaul
