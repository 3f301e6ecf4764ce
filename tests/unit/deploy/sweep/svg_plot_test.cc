#include "deploy/sweep/svg_plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace longhaul::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

Plot TwoPoints() {
  return {.title = "A <b> plot",
          .description = "it",
          .x = {.label = "rate"},
          .y = {.label = "speed"},
          .series = {{.name = "one", .points = {{1, 10, "first"}, {3, 20, "second & last"}}}}};
}

size_t CountIn(const std::string& text, const std::string& what) {
  size_t count = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

TEST(LinearTicks, AreRound) {
  EXPECT_THAT(LinearTicks(0, 10, 5), ElementsAre(0, 2, 4, 6, 8, 10));
  EXPECT_THAT(LinearTicks(-0.05, 1.05, 5), ElementsAre(0, 0.5, 1));
  EXPECT_EQ(LinearTicks(5.1, 5.3, 5).size(), 5u);
}

TEST(LogarithmicTicks, ArePowersOrMore) {
  EXPECT_THAT(LogarithmicTicks(0.5, 2000), ElementsAre(1, 10, 100, 1000));
  EXPECT_THAT(LogarithmicTicks(9, 120), ElementsAre(10, 30, 100));
  EXPECT_GE(LogarithmicTicks(100, 110).size(), 3u);
}

TEST(SvgOf, ShowsEveryPointAndEscapes) {
  const std::string svg = SvgOf(TwoPoints());
  EXPECT_EQ(CountIn(svg, "class=\"marker"), 2u);
  EXPECT_EQ(CountIn(svg, "class=\"line"), 1u);
  EXPECT_THAT(svg, HasSubstr("A &lt;b&gt; plot"));
  EXPECT_THAT(svg, HasSubstr("second &amp; last"));
  EXPECT_THAT(svg, HasSubstr(">rate</text>"));
  EXPECT_THAT(svg, HasSubstr(">speed</text>"));
}

TEST(SvgOf, LeavesOutWhatItCannotShow) {
  Plot plot = TwoPoints();
  plot.y.logarithmic = true;
  plot.series[0].points.push_back({4, 0, "zero"});
  plot.series[0].points.push_back({std::numeric_limits<double>::quiet_NaN(), 3, "nothing"});
  const std::string svg = SvgOf(plot);
  EXPECT_EQ(CountIn(svg, "class=\"marker"), 2u);
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
  plot.series[0].points = {{1, 0, ""}};
  EXPECT_EQ(SvgOf(plot), "");
}

TEST(SvgOf, OnePointAloneHasAPlace) {
  Plot plot = TwoPoints();
  plot.series[0].points.resize(1);
  for (const bool logarithmic : {false, true}) {
    plot.x.logarithmic = plot.y.logarithmic = logarithmic;
    const std::string svg = SvgOf(plot);
    EXPECT_EQ(CountIn(svg, "class=\"marker"), 1u);
    EXPECT_THAT(svg, Not(HasSubstr("nan")));
  }
}

TEST(SvgOf, BarsAreAsLongAsTheirShares) {
  const std::string svg = SvgOf(BarPlot{
      .title = "t",
      .description = "d",
      .bars = {
          {.label = "a", .parts = {{"x", 0, 0.25}, {"y", 1, 0.9}}, .below = {{"z", 2, 0.5}}}}});
  // 318 wide; what is more than all is cut.
  EXPECT_THAT(svg, HasSubstr("width=\"79.5\""));
  EXPECT_THAT(svg, HasSubstr("width=\"238.5\""));
  EXPECT_THAT(svg, HasSubstr("width=\"159.0\""));
  EXPECT_THAT(svg, HasSubstr("<title>y: 90.0 %</title>"));
  EXPECT_EQ(SvgOf(BarPlot{}), "");
}

}  // namespace
}  // namespace longhaul::cli
