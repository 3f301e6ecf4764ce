#include "transport/collective/switcher/model.h"

#include <gmock/gmock.h>

namespace longhaul::collective::switcher {
namespace {

using ::testing::DoubleNear;
using ::testing::HasSubstr;
using ::testing::Optional;

// Times of a native communicator with T = 10 us + 1 us/KB and of an alternative with its own line.
std::vector<Point> Points(double start, double per_byte,
                          const std::vector<uint64_t>& sizes = {1000, 10000, 100000, 1000000}) {
  std::vector<Point> points;
  for (const uint64_t bytes : sizes) {
    const auto d = static_cast<double>(bytes);
    points.push_back({bytes, {10e-6 + 1e-9 * d, start + per_byte * d}});
  }
  return points;
}

bool operator==(const Range& a, const Range& b) {
  return a.bytes == b.bytes && a.line == b.line;
}

std::vector<size_t> Lines(const std::vector<Range>& ranges) {
  std::vector<size_t> lines;
  for (const Range& range : ranges) lines.push_back(range.line);
  return lines;
}

TEST(FitTest, FindsALine) {
  const Fit fit = FitOf(Points(50e-6, 0.5e-9), 1);
  EXPECT_NEAR(fit.start, 50e-6, 1e-10);
  EXPECT_NEAR(fit.per_byte, 0.5e-9, 1e-15);
}
TEST(FitTest, NeverHasANegativeNumber) {
  // Steeper at first, and falling.
  const std::vector<Point> convex = {
      {1000, {1e-6, 1e-6}}, {10000, {1e-6, 20e-6}}, {20000, {1, 60e-6}}};
  const Fit along = FitOf(convex, 1);
  EXPECT_EQ(along.start, 0);
  EXPECT_GT(along.per_byte, 0);
  const std::vector<Point> falling = {{1000, {1, 3e-6}}, {10000, {1, 2e-6}}};
  const Fit level = FitOf(falling, 1);
  EXPECT_EQ(level.per_byte, 0);
  EXPECT_GT(level.start, 2e-6);
  EXPECT_LT(level.start, 3e-6);
}
TEST(FitTest, LeavesOutWhatCouldNotBeDone) {
  std::vector<Point> points = Points(50e-6, 0.5e-9);
  points[1].seconds[1] = 0;
  EXPECT_NEAR(FitOf(points, 1).start, 50e-6, 1e-10);
  for (Point& point : points) point.seconds[1] = 0;
  EXPECT_EQ(FitOf(points, 1).per_byte, 0);
}

TEST(SlopeTest, FollowsTheRatio) {
  // 1 ns a byte on the wire, at ratio 1.4, and 0.2 ns of coding.
  const Slope slope = SlopeOf(0.2e-9 + 1e-9 / 1.4, 1e-9, 1.4);
  EXPECT_NEAR(slope.code, 0.2e-9, 1e-15);
  EXPECT_NEAR(slope.At(1), 1.2e-9, 1e-15);
  EXPECT_NEAR(slope.At(2), 0.7e-9, 1e-15);
}
TEST(SlopeTest, TheWireTakesNoMoreThanAll) {
  const Slope slope = SlopeOf(0.5e-9, 1e-9, 1.4);
  EXPECT_EQ(slope.code, 0);
  EXPECT_NEAR(slope.At(1.4), 0.5e-9, 1e-15);
}

TEST(WinsFromTest, MeetsBetweenTwoSizes) {
  // 10 + d = 1.05 x (50 + d / 2): d = 89.5 KB.
  EXPECT_THAT(WinsFrom(Points(50e-6, 0.5e-9), 1, 0.05), Optional(DoubleNear(89474, 1)));
}
TEST(WinsFromTest, AllOrNothing) {
  EXPECT_THAT(WinsFrom(Points(1e-6, 0.5e-9), 1, 0.05), Optional(0.0));
  EXPECT_EQ(WinsFrom(Points(50e-6, 1e-9), 1, 0.05), std::nullopt);
  // Faster, but not by the margin.
  EXPECT_EQ(WinsFrom(Points(9.8e-6, 0.98e-9), 1, 0.05), std::nullopt);
  EXPECT_THAT(WinsFrom(Points(50e-6, 1e-9), 1, -0.99), Optional(0.0));
}
TEST(WinsFromTest, ALargerSizeThatLostCounts) {
  std::vector<Point> points = Points(1e-6, 0.5e-9);
  points[2].seconds[1] = 1;
  EXPECT_THAT(WinsFrom(points, 1, 0.05), Optional(DoubleNear(1e6, 1e3)));
  points[2].seconds[1] = 0;  // could not be done
  EXPECT_THAT(WinsFrom(points, 1, 0.05), Optional(1e6));
}

TEST(RangesTest, OneThreshold) {
  const std::vector<Candidate> candidates = {{{10e-6, 1e-9}}, {{50e-6, 0.5e-9}}};
  const std::vector<Range> ranges = RangesOf(candidates, 0.05);
  EXPECT_EQ(Lines(ranges), (std::vector<size_t>{0, 1}));
  EXPECT_EQ(ranges[1].bytes, 89474);
  EXPECT_EQ(Choose(ranges, 0), 0);
  EXPECT_EQ(Choose(ranges, 89473), 0);
  EXPECT_EQ(Choose(ranges, 89474), 1);
  EXPECT_EQ(Choose(ranges, ~uint64_t{0}), 1);
}
TEST(RangesTest, NotBelowWhereItWon) {
  std::vector<Candidate> candidates = {{{10e-6, 1e-9}}, {{50e-6, 0.5e-9}, 1e6}};
  EXPECT_TRUE(RangesOf(candidates, 0.05)[1] == (Range{1000000, 1}));
  candidates[1].usable = false;
  EXPECT_EQ(Lines(RangesOf(candidates, 0.05)), std::vector<size_t>{0});
}
TEST(RangesTest, TheMarginIsHeldAgainstTheNativeOneAlone) {
  // The faster of two alternatives is taken, however little faster it is.
  const std::vector<Candidate> candidates = {
      {{10e-6, 1e-9}}, {{20e-6, 0.8e-9}}, {{21e-6, 0.79e-9}}};
  EXPECT_EQ(Lines(RangesOf(candidates, 0.05)), (std::vector<size_t>{0, 1, 2}));
  EXPECT_EQ(Lines(RangesOf(candidates, 0.3)), std::vector<size_t>{0});
}
TEST(RangesTest, ComesAndGoes) {
  // Good for small calls alone.
  const std::vector<Candidate> candidates = {{{10e-6, 1e-9}}, {{1e-6, 2e-9}}};
  EXPECT_EQ(Lines(RangesOf(candidates, 0.05)), (std::vector<size_t>{1, 0}));
}
TEST(RangesTest, EqualLinesAreNative) {
  const std::vector<Candidate> candidates = {{{10e-6, 1e-9}}, {{10e-6, 1e-9}}};
  EXPECT_EQ(Lines(RangesOf(candidates, 0)), std::vector<size_t>{0});
}

TEST(TextTest, SaysWhatIsTakenFromWhere) {
  const Decision decision{
      .op = Op::kAllGather,
      .dtype = Dtype::kBf16,
      .lines = {{"native", 10e-6, 1e-9, 1, 7, 7000}, {"zip", 50e-6, 0.5e-9, 1.41}},
      .ranges = {{0, 0}, {89474, 1}}};
  const std::string text = ToText({decision});
  EXPECT_THAT(text, HasSubstr("AllGather of bf16: native, from 89.5 KB on zip\n"));
  EXPECT_THAT(text, HasSubstr("50.0 us +   500.000 us/MB, ratio 1.410; 0 calls"));
  EXPECT_THAT(text, HasSubstr("7 calls, 7 KB"));
}

}  // namespace
}  // namespace longhaul::collective::switcher
