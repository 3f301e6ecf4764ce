#include "base/peer_log.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/log.h"
#include "base/rate_limit.h"

namespace longhaul {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

MonoTime At(double seconds) {
  return MonoTime() + absl::Hours(1) + absl::Seconds(seconds);
}

TEST(PeerLinesTest, OneLineASecondAndACount) {
  PeerLines lines;
  EXPECT_EQ(lines.Line("a", "refused", At(0)), "refused");
  for (int i = 0; i < 37; ++i) EXPECT_EQ(lines.Line("a", "refused", At(0.5)), std::nullopt);
  EXPECT_EQ(lines.Line("a", "refused", At(1)), "refused (37 more in the last 1 s)");
  EXPECT_EQ(lines.Line("a", "refused", At(1.99)), std::nullopt);
  EXPECT_EQ(lines.Line("a", "other", At(5)), "other (1 more in the last 4 s)");
  EXPECT_EQ(lines.Line("a", "other", At(7)), "other");
}

TEST(PeerLinesTest, PeersDoNotSilenceEachOther) {
  PeerLines lines;
  EXPECT_EQ(lines.Line("a", "refused", At(0)), "refused");
  EXPECT_EQ(lines.Line("b", "refused", At(0)), "refused");
}

TEST(PeerLinesTest, WhatWasLeftOutIsSaidAlsoWhenNothingFollows) {
  PeerLines lines;
  for (int i = 0; i < 4; ++i) (void)lines.Line("a", "refused", At(0));
  (void)lines.Line("b", "refused", At(0));
  EXPECT_THAT(lines.Overdue(At(0.9)), IsEmpty());
  EXPECT_THAT(lines.Overdue(At(2)),
              ElementsAre("a: lines of its kind were left out (3 more in the last 2 s)"));
  EXPECT_THAT(lines.Overdue(At(9)), IsEmpty());
}

TEST(PeerLinesTest, ManyPeersShareALine) {
  PeerLines lines;
  size_t written = 0;
  for (int i = 0; i < 10'000; ++i) {
    written += lines.Line(fmt::format("peer {}", i), "refused", At(0)).has_value() ? 1 : 0;
  }
  EXPECT_EQ(written, PeerLines::kMaxPeers + 1);
  // A second later the old ones make room.
  EXPECT_EQ(lines.Line("one more", "refused", At(2)), "refused");
}

TEST(LogTest, WhatAPeerSaidStaysOnItsLine) {
  ASSERT_TRUE(InitLogging("info").ok());
  std::string line;
  SetLogTap([&](std::string_view, std::string_view message) { line = message; });
  ::testing::internal::CaptureStderr();
  LogInfo("a worker said: {}", "x\n2026-01-01 error \x1b[31mforged");
  const std::string written = ::testing::internal::GetCapturedStderr();
  SetLogTap({});
  EXPECT_EQ(line, "a worker said: x 2026-01-01 error ?[31mforged");
  EXPECT_NE(written.find("said: x 2026-01-01 error ?[31mforged\n"), std::string::npos) << written;
}

TEST(RateLimitTest, ABurstThenARate) {
  RateLimit limit(10, 3);
  EXPECT_EQ(limit.Take(At(0)), absl::ZeroDuration());
  EXPECT_EQ(limit.Take(At(0)), absl::ZeroDuration());
  EXPECT_NEAR(absl::ToDoubleSeconds(limit.Take(At(0))), 0.1, 1e-9);
  EXPECT_NEAR(absl::ToDoubleSeconds(limit.Take(At(0.1))), 0.1, 1e-9);
  EXPECT_EQ(limit.Take(At(10)), absl::ZeroDuration());  // full again, and no more than full
  EXPECT_EQ(limit.Take(At(10)), absl::ZeroDuration());
  EXPECT_GT(limit.Take(At(10)), absl::ZeroDuration());
}

}  // namespace
}  // namespace longhaul
