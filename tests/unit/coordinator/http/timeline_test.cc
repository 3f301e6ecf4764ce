// A trace as a timeline.
#include "coordinator/http/timeline.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

namespace longhaul::coordinator {
namespace {

// Spans of steps [first, last], each a millisecond long, from `begin_ns` on.
v1::StageTrace Stage(uint32_t stage, uint64_t first, uint64_t last, int64_t begin_ns) {
  v1::StageTrace trace;
  trace.mutable_cell()->set_stage(stage);
  trace.set_clock_id("one machine");
  for (uint64_t number = first; number <= last; ++number) {
    v1::StepTrace& step = *trace.add_steps();
    step.set_step(number);
    step.set_begin_ns(begin_ns + static_cast<int64_t>(number) * 1'000'000);
    step.set_end_ns(step.begin_ns() + 1'000'000);
    v1::Span& span = *step.add_spans();
    span.set_kind(v1::Span::FORWARD);
    span.set_microbatch(3);
    span.set_begin_ns(200'000);
    span.set_length_ns(50'000);
  }
  return trace;
}

TEST(TimelineTest, ShowsTheNewestStepThatAllStagesHave) {
  v1::TraceReply trace;
  trace.set_run_id("tiny-abcdef");
  *trace.add_stages() = Stage(0, 5, 8, 0);
  *trace.add_stages() = Stage(1, 5, 7, 100'000);  // it begins a step 100 us later
  v1::Cell& cell = *trace.mutable_plan()->mutable_assignment()->add_cells();
  cell.mutable_id()->set_stage(1);
  cell.set_worker_name("worker2");
  const auto json = nlohmann::json::parse(TimelineJson(trace));
  EXPECT_EQ(json["step"], 7);
  EXPECT_EQ(json["length_us"], 1100);
  ASSERT_EQ(json["stages"].size(), 2u);
  EXPECT_EQ(json["stages"][1]["worker"], "worker2");
  EXPECT_EQ(json["stages"][1]["begin_us"], 100);
  EXPECT_EQ(json["stages"][0]["spans"], nlohmann::json::parse(R"([["forward",200,50,3,0,false]])"));
  EXPECT_EQ(json["stages"][1]["spans"], nlohmann::json::parse(R"([["forward",300,50,3,0,false]])"));
}

TEST(TimelineTest, NoStepIsCommonToAll) {
  v1::TraceReply trace;
  *trace.add_stages() = Stage(0, 5, 6, 0);
  *trace.add_stages() = Stage(1, 3, 4, 0);
  EXPECT_TRUE(nlohmann::json::parse(TimelineJson(trace))["step"].is_null());
  EXPECT_TRUE(nlohmann::json::parse(TimelineJson({}))["step"].is_null());
}

}  // namespace
}  // namespace longhaul::coordinator
