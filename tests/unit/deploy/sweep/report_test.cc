#include "deploy/sweep/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <string>
#include <vector>

#include "tests/unit/deploy/sweep/sample.h"

namespace longhaul::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// `html` without its style sheets, in which '<' and '>' mean something else.
std::string Body(std::string html) {
  const std::string begin = "<style>", end = "</style>";
  for (size_t from; (from = html.find(begin)) != std::string::npos;) {
    const size_t to = html.find(end, from);
    if (to == std::string::npos) break;
    html.erase(from, to + end.size() - from);
  }
  return html;
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

TEST(Report, IsWellFormedAndHasEveryPlot) {
  const std::string html = Report(Sample());
  EXPECT_EQ(TagProblem(html), "");
  // Throughput; attribution of two rates; prediction; losses against steps, and
  // against time at two rates.
  EXPECT_EQ(Count(html, "<figure class=\"plot\">"), 1u + 2 + 1 + 1 + 2);
  EXPECT_THAT(html, HasSubstr("Some CPU, 2 cores"));
  EXPECT_THAT(html, HasSubstr("8 points done of 8"));
  EXPECT_THAT(html, Not(HasSubstr("Partial results")));
  EXPECT_THAT(html, Not(HasSubstr("class=\"note\"")));
  EXPECT_THAT(html, HasSubstr("the median of 8 points"));
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
  EXPECT_EQ(Count(html, "<figure"), 0u);
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
  EXPECT_THAT(html, Not(HasSubstr("<script")));
  EXPECT_THAT(html, Not(HasSubstr("<svg onload")));
  EXPECT_THAT(html, Not(HasSubstr("\x01")));
  EXPECT_THAT(html, HasSubstr("default-src 'none'"));
}

TEST(Report, ShowsALinkThatIsNotShaped) {
  SweepResults results = Sample();
  for (PointResult& point : results.points) {
    if (point.rate_bits_per_second == 20'000'000) point.rate_bits_per_second = 0;
  }
  const std::string html = Report(results);
  EXPECT_EQ(TagProblem(html), "");
  EXPECT_THAT(html, HasSubstr(">not shaped</text>"));
  EXPECT_THAT(html, Not(HasSubstr("nan")));
}

}  // namespace
}  // namespace longhaul::cli
