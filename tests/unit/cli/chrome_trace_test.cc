// `longhaul trace`, and the document that it writes.
#include "coordinator/view/chrome_trace.h"

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "run/plan/chain.h"
#include "run/plan/proto/plan_proto.h"
#include "tests/unit/cli/cli_test.h"

namespace longhaul::cli {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

v1::Span& AddSpan(v1::StepTrace& step, v1::Span::Kind kind, bool up, int64_t begin_us,
                  int64_t length_us, uint32_t microbatch = 0) {
  v1::Span& span = *step.add_spans();
  span.set_kind(kind);
  span.set_up(up);
  span.set_microbatch(microbatch);
  span.set_begin_ns(begin_us * 1000);
  span.set_length_ns(length_us * 1000);
  return span;
}

// Two stages, a step: forward at 0 and 300 us, the transfers take 100 us and arrive 20 us after
// they were encoded. `ahead_us`: how much later the lower stage's clock is.
v1::TraceReply TwoStages(int64_t ahead_us, const std::string& lower_clock) {
  v1::TraceReply trace;
  trace.set_run_id("tiny-1");
  for (const int stage : {0, 1}) {
    v1::StageTrace& one = *trace.add_stages();
    one.mutable_cell()->set_stage(static_cast<uint32_t>(stage));
    one.set_clock_id(stage == 0 ? "here" : lower_clock);
    v1::StepTrace& step = *one.add_steps();
    step.set_step(5);
    step.set_begin_ns(1'000'000'000 + (stage == 0 ? 0 : ahead_us * 1000));
    step.set_end_ns(step.begin_ns() + 1'000'000);
  }
  Plan plan;
  plan.assignment.cells = {{.worker_name = "alpha"}, {.id = {.stage = 1}, .worker_name = "beta"}};
  plan.assignment.edges = chain::MakeEdges(1, 2);
  plan.assignment.edges[0].id = EdgeId(5);
  plan.assignment.edges[0].forward.codec = "tah";
  plan.assignment.edges[0].backward.codec = "fixed:bits=6";
  *trace.mutable_plan() = ToProto(plan);
  v1::StepTrace& upper = *trace.mutable_stages(0)->mutable_steps(0);
  v1::StepTrace& lower = *trace.mutable_stages(1)->mutable_steps(0);
  AddSpan(upper, v1::Span::FORWARD, false, 0, 100);
  AddSpan(upper, v1::Span::ENCODE, false, 100, 50);
  AddSpan(lower, v1::Span::RECEIVE, true, 170, 100).set_bytes(1000);
  AddSpan(lower, v1::Span::DECODE, true, 270, 30);
  AddSpan(lower, v1::Span::FORWARD, false, 300, 100);
  AddSpan(lower, v1::Span::BACKWARD, false, 400, 100);
  AddSpan(lower, v1::Span::ENCODE, true, 500, 50);
  AddSpan(upper, v1::Span::WAIT_GRADIENT, false, 100, 600);
  AddSpan(upper, v1::Span::RECEIVE, false, 570, 100);
  AddSpan(upper, v1::Span::DECODE, false, 670, 30);
  AddSpan(upper, v1::Span::BACKWARD, false, 700, 100);
  AddSpan(upper, v1::Span::OPTIMIZER, false, 900, 100);
  return trace;
}

std::map<std::string, Json> ByName(const Json& document) {
  std::map<std::string, Json> events;
  for (const Json& event : document["traceEvents"]) {
    if (event["ph"] != "X") continue;
    events[event["name"].get<std::string>() + "@" + std::to_string(event["pid"].get<int>()) + "." +
           std::to_string(event["tid"].get<int>())] = event;
  }
  return events;
}

TEST(ChromeTrace, HasARowForEachStageCodecAndDirection) {
  const Json document = Json::parse(ToChromeTrace(TwoStages(0, "here")));
  std::map<std::pair<int, int>, std::string> rows;
  for (const Json& event : document["traceEvents"]) {
    if (event["name"] == "thread_name") rows[{event["pid"], event["tid"]}] = event["args"]["name"];
  }
  const std::map<std::pair<int, int>, std::string> wanted = {
      {{1, 0}, "stage 0 (alpha)"},  {{1, 1}, "stage 1 (beta)"}, {{2, 0}, "codec of stage 0"},
      {{2, 1}, "codec of stage 1"}, {{3, 0}, "0 to 1: tah"},    {{3, 1}, "1 to 0: fixed:bits=6"}};
  EXPECT_EQ(rows, wanted);
  const auto events = ByName(document);
  EXPECT_EQ(events.at("step 5@1.0")["ts"], 0);
  EXPECT_EQ(events.at("step 5@1.0")["dur"], 1000);
  EXPECT_EQ(events.at("F0@1.1")["ts"], 300);
  EXPECT_EQ(events.at("F0@1.1")["dur"], 100);
  EXPECT_EQ(events.at("activation 0@3.0")["ts"], 170);
  EXPECT_DOUBLE_EQ(events.at("activation 0@3.0")["args"]["Mbit/s"], 80);
  EXPECT_EQ(events.at("gradient 0@3.1")["ts"], 570);
  EXPECT_TRUE(events.contains("encode gradient 0@2.1"));
  EXPECT_TRUE(events.contains("decode activation 0@2.1"));
  EXPECT_TRUE(events.contains("wait for a gradient@1.0"));
  EXPECT_TRUE(events.contains("optimizer@1.0"));
}

TEST(ChromeTrace, AlignsClocksOfDifferentMachines) {
  EXPECT_EQ(ClockOffsetsNs(TwoStages(0, "here")), (std::vector<int64_t>{0, 0}));
  // Times of one machine need no correction.
  EXPECT_EQ(ClockOffsetsNs(TwoStages(77, "here")), (std::vector<int64_t>{0, 0}));
  for (const int64_t ahead_us : {int64_t{0}, int64_t{-500}, int64_t{3'600'000'000}}) {
    const v1::TraceReply trace = TwoStages(ahead_us, "there");
    EXPECT_EQ(ClockOffsetsNs(trace), (std::vector<int64_t>{0, -ahead_us * 1000}));
    EXPECT_EQ(ByName(Json::parse(ToChromeTrace(trace))).at("F0@1.1")["ts"], 300);
  }
}

TEST(ChromeTrace, TakesWhateverComes) {
  v1::TraceReply trace = TwoStages(0, "");  // no clock, and no plan
  trace.clear_plan();
  AddSpan(*trace.mutable_stages(0)->mutable_steps(0), v1::Span::RECEIVE, true, 0, -5);
  AddSpan(*trace.mutable_stages(1)->mutable_steps(0), static_cast<v1::Span::Kind>(77), true, 0, 5);
  EXPECT_FALSE(Json::parse(ToChromeTrace(trace))["traceEvents"].empty());
  EXPECT_TRUE(Json::parse(ToChromeTrace({})).contains("traceEvents"));
}

class TraceCommandTest : public CliTest {};

TEST_F(TraceCommandTest, WritesAFileOrToStandardOutput) {
  control_.trace = TwoStages(0, "here");
  const Outcome file = Ask({"trace", "tiny", "-o", Path("trace.Json"), "--steps", "3"});
  EXPECT_EQ(file.code, 0) << file.err;
  EXPECT_THAT(file.out, HasSubstr("steps 5 to 5 of tiny-1, 2 stages"));
  EXPECT_EQ(control_.trace_request.run(), "tiny");
  EXPECT_EQ(control_.trace_request.steps(), 3u);
  std::ostringstream text;
  text << std::ifstream(Path("trace.Json")).rdbuf();
  const Outcome out = Ask({"trace", "tiny", "-o", "-"});
  EXPECT_EQ(out.out, text.str());
  EXPECT_EQ(Ask({"trace", "tiny"}).code, 2);
  EXPECT_EQ(Ask({"trace", "tiny", "-o", Path("no/such/folder/t.Json")}).code, 1);
}

}  // namespace
}  // namespace longhaul::cli
