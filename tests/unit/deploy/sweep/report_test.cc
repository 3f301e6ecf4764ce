#include "deploy/sweep/report.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/deploy/sweep/sample.h"

namespace longhaul::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// `html` without its style sheets, scripts and comments, in which '<' and '>' mean something else.
std::string Body(std::string html) {
  for (const auto& [begin, end] : std::initializer_list<std::pair<std::string, std::string>>{
           {"<style", "</style>"}, {"<script", "</script>"}, {"<!--", "-->"}}) {
    for (size_t from; (from = html.find(begin)) != std::string::npos;) {
      const size_t to = html.find(end, from);
      if (to == std::string::npos) break;
      html.erase(from, to + end.size() - from);
    }
  }
  return html;
}

// What the charts are drawn from.
nlohmann::json DataIn(const std::string& html) {
  const std::string begin = "id=\"data\">";
  const size_t from = html.find(begin) + begin.size();
  return nlohmann::json::parse(html.substr(from, html.find("</script>", from) - from));
}

// What is wrong with the document's tags, or "": all but HTML's void elements are closed in order.
// (By hand: g++ 12 warns falsely of std::regex under AddressSanitizer.)
std::string TagProblem(const std::string& html) {
  const std::set<std::string> empty = {"meta", "link", "!DOCTYPE"};
  std::vector<std::string> open;
  const std::string body = Body(html);
  for (size_t at = 0; (at = body.find('<', at)) != std::string::npos;) {
    const size_t end = body.find_first_of("<>", at + 1);
    if (end == std::string::npos || body[end] == '<') return "a '<' that begins no tag";
    std::string tag = body.substr(at + 1, end - at - 1);
    at = end;
    if (std::ranges::count(tag, '"') % 2 != 0) return "<" + tag + "> ends within quotes";
    const bool closes = tag.starts_with('/'), closed = tag.ends_with('/');
    if (closes) tag.erase(0, 1);
    const auto name_end = std::ranges::find_if_not(
        tag, [](unsigned char c) { return std::isalnum(c) != 0 || c == '!'; });
    const std::string name(tag.begin(), name_end);
    if (name.empty()) return "a '<' that begins no tag";
    if (closes) {
      if (open.empty() || open.back() != name) return "unexpected </" + name + ">";
      open.pop_back();
    } else if (!closed && !empty.contains(name)) {
      open.push_back(name);
    }
  }
  return open.empty() ? "" : "<" + open.back() + "> is not closed";
}

size_t Count(const std::string& text, const std::string& what) {
  size_t count = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

TEST(Report, IsWellFormedAndHasEveryChartsPlace) {
  const std::string html = Report(Sample());
  EXPECT_EQ(TagProblem(html), "");
  for (const char* chart : {"throughput", "time", "prediction", "loss"}) {
    EXPECT_EQ(Count(html, fmt::format("data-charts=\"{}\"", chart)), 1u) << chart;
  }
  EXPECT_THAT(html, HasSubstr("Permission is hereby granted"));
  EXPECT_THAT(html, HasSubstr("Some CPU, 2 cores"));
  EXPECT_THAT(html, HasSubstr("8 points done of 8"));
  EXPECT_THAT(html, Not(HasSubstr("Partial results")));
  EXPECT_EQ(Count(html, "class=\"note\""), Count(html, "<noscript>"));
  EXPECT_THAT(html, HasSubstr("the median of 8 points"));
}

TEST(Report, HasTheDataOfItsCharts) {
  const SweepResults results = Sample();
  const nlohmann::json data = DataIn(Report(results));
  EXPECT_EQ(data["curves"].size(), 4u);
  EXPECT_EQ(data["settings"], nlohmann::json({""}));
  EXPECT_EQ(data["rates"][1], nlohmann::json({{"place", 5e6}, {"label", "5 Mbit/s"}}));
  ASSERT_EQ(data["points"].size(), results.points.size());
  const PointResult& last = results.points.back();  // of 5 Mbit/s, paper, 1f1b
  const nlohmann::json& point = data["points"].back();
  EXPECT_EQ(point["name"], "5 Mbit/s, paper, 1f1b");
  EXPECT_EQ(point["rate"], 1);
  EXPECT_EQ(data["curves"][point["curve"].get<size_t>()]["name"], "paper, 1f1b");
  EXPECT_DOUBLE_EQ(point["step_seconds"], last.step_seconds);
  EXPECT_DOUBLE_EQ(point["simulated_seconds"], last.simulated_seconds);
  EXPECT_DOUBLE_EQ(point["shares"]["wait_gradient"], 0.35);
  const nlohmann::json& losses = point["losses"];
  EXPECT_EQ(losses["validation"], true);
  EXPECT_EQ(losses["steps"], nlohmann::json({5, 10, 15, 20}));
  EXPECT_DOUBLE_EQ(losses["seconds"][1], 10 * last.step_seconds);
  EXPECT_DOUBLE_EQ(losses["values"][1], *last.curve[9].validation_loss);
}

TEST(Report, AChartHasTheMedianOfRepeats) {
  SweepResults results = Sample();
  const PointResult first = results.points[0];
  for (uint32_t repeat = 2; repeat <= 3; ++repeat) {
    PointResult again = first;
    again.repeat = repeat;
    again.step_seconds *= repeat;
    results.points.push_back(again);
  }
  const nlohmann::json data = DataIn(Report(results));
  EXPECT_EQ(data["points"].size(), 10u);
  ASSERT_EQ(data["medians"].size(), 8u);
  EXPECT_DOUBLE_EQ(data["medians"][0]["tokens_per_second"], first.TokensPerSecond() / 2);
}

TEST(Report, ChartsTrainingLossesWhereNothingValidates) {
  SweepResults results = Sample();
  for (StepResult& step : results.points[0].curve) step.validation_loss = std::nullopt;
  const nlohmann::json data = DataIn(Report(results));
  EXPECT_EQ(data["points"][0]["losses"]["validation"], false);
  EXPECT_EQ(data["points"][0]["losses"]["steps"].size(), 20u);
}

TEST(Report, TestOfTheTest) {
  EXPECT_NE(TagProblem("<p><b></p></b>"), "");
  EXPECT_NE(TagProblem("<p>"), "");
  EXPECT_NE(TagProblem("<p>1 < 2</p>"), "");
  EXPECT_EQ(TagProblem("<p title=\"a\">1 &lt; 2<br/></p>"), "");
}

TEST(Report, SaysThatItIsPartial) {
  SweepResults results = Sample();
  results.points[3] = SampleWaiting(20'000'000, "paper", "1f1b");
  const std::string html = Report(results);
  EXPECT_EQ(TagProblem(html), "");
  EXPECT_THAT(html, HasSubstr("Partial results:</strong> 1 of 8 points have not run yet"));
  EXPECT_THAT(html, HasSubstr("<td>waiting</td>"));
}

TEST(Report, OfNothingYet) {
  SweepResults results = Sample();
  for (PointResult& point : results.points) {
    point = SampleWaiting(point.rate_bits_per_second, point.links, point.schedule);
  }
  const std::string html = Report(results);
  EXPECT_EQ(TagProblem(html), "");
  EXPECT_THAT(html, HasSubstr("8 of 8 points have not run yet"));
  EXPECT_EQ(Count(html, "data-charts="), 0u);
  EXPECT_EQ(TagProblem(Report(SweepResults{})), "");
}

TEST(Report, NamesWhatFailedAndWhy) {
  SweepResults results = Sample();
  results.points[0] = SampleWaiting(20'000'000, "fp32", "link-aware");
  results.points[0].state = PointState::kRunFailed;
  results.points[0].reason = "worker2 is <gone> & lost";
  results.points[1] = SampleWaiting(20'000'000, "fp32", "1f1b");
  results.points[1].state = PointState::kImpossible;
  results.points[1].reason = "too few workers";
  const std::string html = Report(results);
  EXPECT_EQ(TagProblem(html), "");
  EXPECT_THAT(html, HasSubstr("2 of 8 points have no measurement:</strong> 1 failed, 1 could not"));
  EXPECT_THAT(html, HasSubstr("worker2 is &lt;gone&gt; &amp; lost"));
  EXPECT_THAT(html, HasSubstr("too few workers"));
}

TEST(Report, MarksReplays) {
  SweepResults results = Sample();
  for (PointResult& point : results.points) {
    point.replayed = true;
    point.replay_source = "one \"GPU\" a stage";
    for (StepResult& step : point.curve)
      step.loss = step.validation_loss = step.clean_validation_loss = std::nullopt;
  }
  const std::string html = Report(results);
  EXPECT_EQ(TagProblem(html), "");
  EXPECT_THAT(html, HasSubstr("<strong>Replayed:</strong>"));
  EXPECT_THAT(html, HasSubstr("one &quot;GPU&quot; a stage"));
  EXPECT_THAT(html, HasSubstr("<span class=\"badge\">replayed</span>"));
  EXPECT_THAT(html, Not(HasSubstr("<h2>Loss</h2>")));
}

TEST(Report, NoTextGetsOutOfItsPlace) {
  const std::string evil =
      "\"><script src=\"https://evil.example/x.js\"></script><svg onload='x'>\x01";
  SweepResults results = Sample();
  results.title = results.version = evil;
  results.machine.cpu = results.machine.system = results.machine.kernel = evil;
  results.machine.gpus = evil;
  results.identity.emplace_back(evil, evil + "\n" + evil);
  for (PointResult& point : results.points) {
    point.id = point.links = point.schedule = point.variant = point.bottleneck = evil;
    point.explanation = point.replay_source = point.reason = evil;
    point.replayed = true;
    for (StageResult& stage : point.stages) stage.worker = evil;
    for (LinkBytes& link : point.link_bytes) link.worker = evil;
  }
  results.points[0].state = PointState::kRunFailed;
  const std::string html = Report(results);
  EXPECT_EQ(TagProblem(html), "");
  EXPECT_EQ(Count(html, "<script"), 3u);  // data, uPlot, ours
  EXPECT_EQ(Count(html, "</script"), 3u);
  EXPECT_THAT(DataIn(html)["points"][0]["name"].get<std::string>(), HasSubstr("<script src="));
  EXPECT_THAT(html, Not(HasSubstr("<svg onload")));
  EXPECT_THAT(html, Not(HasSubstr("\x01")));
  EXPECT_THAT(html, HasSubstr("default-src 'none'; script-src 'sha256-"));
}

TEST(Report, ShowsALinkThatIsNotShaped) {
  SweepResults results = Sample();
  for (PointResult& point : results.points) {
    if (point.rate_bits_per_second == 20'000'000) point.rate_bits_per_second = 0;
  }
  const std::string html = Report(results);
  EXPECT_EQ(TagProblem(html), "");
  // Right of all others.
  EXPECT_EQ(DataIn(html)["rates"], nlohmann::json({{{"place", 5e6}, {"label", "5 Mbit/s"}},
                                                   {{"place", 15e6}, {"label", "not shaped"}}}));
}

}  // namespace
}  // namespace longhaul::cli
