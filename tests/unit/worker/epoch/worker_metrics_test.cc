#include "worker/epoch/worker_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace longhaul::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

v1::WorkerMessage StepOf(const std::string& run, uint64_t step, double seconds) {
  v1::WorkerMessage message;
  message.set_run_id(run);
  v1::StepReport& report = *message.mutable_step();
  report.set_step(step);
  report.set_seconds(seconds);
  report.set_forward_seconds(seconds / 2);
  report.set_nonfinite_tiles(3);
  v1::LinkUse& use = *report.add_links();
  use.set_edge(4);
  use.set_payload_bytes_sent(100);
  return message;
}

StageReading StageOf(const std::string& run) {
  StageReading stage{.run = RunId(run), .epoch = Epoch(2), .cell = {.replica = 1, .stage = 3}};
  stage.links.push_back({.edge = EdgeId(4), .peer = "b", .codec = "tah", .transport = "grpc"});
  stage.links.back().stats.frames_resent = 9;
  return stage;
}

std::string TextOf(const WorkerMetrics& metrics, const std::optional<StageReading>& stage) {
  return metrics::ToText(metrics.PageOf(stage, 1000, 0));
}

TEST(WorkerMetrics, AddsUpTheStepsOfTheRunAtHand) {
  WorkerMetrics metrics("1.2.3", {});
  metrics.Note(StepOf("a", 1, 2));
  metrics.Note(StepOf("a", 2, 4));
  const std::string text = TextOf(metrics, StageOf("a"));
  const std::string cell = "{run=\"a\",replica=\"1\",stage=\"3\"";
  EXPECT_THAT(text, HasSubstr("longhaul_worker_steps_total" + cell + "} 2\n"));
  EXPECT_THAT(text, HasSubstr("longhaul_worker_step_seconds_total" + cell + "} 6\n"));
  EXPECT_THAT(text, HasSubstr("part_seconds_total" + cell + ",part=\"forward\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("longhaul_worker_nonfinite_tiles_total" + cell + "} 6\n"));
  EXPECT_THAT(text, HasSubstr("longhaul_worker_step" + cell + "} 2\n"));
  const std::string edge =
      "{run=\"a\",edge=\"4\",kind=\"activations\",peer=\"b\",codec=\"tah\",transport=\"grpc\"}";
  EXPECT_THAT(text, HasSubstr("longhaul_worker_link_step_payload_bytes_total" + edge + " 200\n"));
  EXPECT_THAT(text, HasSubstr("longhaul_worker_link_frames_resent_total" + edge + " 9\n"));
}

TEST(WorkerMetrics, ShowsNothingOfARunThatIsGone) {
  WorkerMetrics metrics("1.2.3", {});
  metrics.Note(StepOf("a", 1, 2));
  EXPECT_THAT(TextOf(metrics, std::nullopt), Not(HasSubstr("run=")));
  // The next run has a stage, and no steps yet.
  const std::string text = TextOf(metrics, StageOf("b"));
  EXPECT_THAT(text, Not(HasSubstr("run=\"a\"")));
  EXPECT_THAT(text, Not(HasSubstr("longhaul_worker_steps_total{")));
  metrics.Note(StepOf("b", 1, 5));
  EXPECT_THAT(
      TextOf(metrics, StageOf("b")),
      HasSubstr("longhaul_worker_step_seconds_total{run=\"b\",replica=\"1\",stage=\"3\"} 5\n"));
}

TEST(WorkerMetrics, CountsWhatWentWrongByKind) {
  WorkerMetrics metrics("1.2.3", {});
  v1::WorkerMessage message;
  message.mutable_link()->set_state("lost");
  metrics.Note(message);
  metrics.Note(message);
  message.mutable_link()->set_state("of a later version");
  metrics.Note(message);
  message.mutable_error()->set_restarts_for(v1::WORKER_FAULT_HUNG);
  metrics.Note(message);
  const std::string text = TextOf(metrics, std::nullopt);
  EXPECT_THAT(text, HasSubstr("longhaul_worker_link_events_total{state=\"lost\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("longhaul_worker_faults_total{kind=\"hung\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("longhaul_worker_faults_total{kind=\"device_lost\"} 0\n"));
  EXPECT_THAT(text, Not(HasSubstr("later version")));
}

}  // namespace
}  // namespace longhaul::worker
