#include "coordinator/rpc/metrics_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace longhaul::coordinator {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string TextOf(const Reading& reading) {
  return metrics::ToText(PageOf(reading));
}

v1::RunStatus RunOf(const std::string& id) {
  v1::RunStatus run;
  run.set_run_id(id);
  run.set_state("running");
  run.set_step(7);
  run.set_loss(2.5);
  return run;
}

TEST(MetricsPageOfCoordinator, SaysOfARunWhatIsKnown) {
  Reading reading;
  reading.runs = {RunOf("a")};
  std::string text = TextOf(reading);
  EXPECT_THAT(text, HasSubstr("longhaul_run_step{run=\"a\"} 7\n"));
  EXPECT_THAT(text, HasSubstr("longhaul_run_loss{run=\"a\"} 2.5\n"));
  EXPECT_THAT(text, HasSubstr("longhaul_run_state{run=\"a\",state=\"running\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("longhaul_run_state{run=\"a\",state=\"failed\"} 0\n"));
  EXPECT_THAT(text, Not(HasSubstr("longhaul_run_validation_loss{")));
  EXPECT_THAT(text, Not(HasSubstr("longhaul_run_checkpoint_timestamp_seconds{")));
  // A replay has no losses, whatever the field says.
  reading.runs[0].set_replay_source("elsewhere");
  EXPECT_THAT(TextOf(reading), Not(HasSubstr("longhaul_run_loss{")));
}

TEST(MetricsPageOfCoordinator, OfMeasuredLinksHasThoseOfRuns) {
  Reading reading;
  reading.runs = {RunOf("a")};
  v1::LinkStatus& link = *reading.runs[0].add_links();
  link.set_from_worker("x");
  link.set_to_worker("y");
  for (const char* to : {"y", "z"}) {
    v1::MeasuredLink& measured = reading.links.emplace_back();
    measured.set_from_worker("x");
    measured.set_to_worker(to);
    measured.set_round_trip_seconds(0.25);
  }
  const std::string text = TextOf(reading);
  EXPECT_THAT(text, HasSubstr("longhaul_measured_link_round_trip_seconds{from=\"x\",to=\"y\","
                              "transport=\"\"} 0.25\n"));
  EXPECT_THAT(text, Not(HasSubstr("to=\"z\"")));
}

TEST(MetricsPageOfCoordinator, CountsEveryKindOfFault) {
  Reading reading;
  reading.faults.Add(FaultKind::kLinkLost);
  reading.faults.Add(FaultKind::kLinkLost);
  const std::string text = TextOf(reading);
  for (const std::string_view name : kFaultNames) {
    EXPECT_THAT(text, HasSubstr("longhaul_coordinator_faults_total{kind=\"" + std::string(name) +
                                (name == "link_lost" ? "\"} 2\n" : "\"} 0\n")));
  }
}

}  // namespace
}  // namespace longhaul::coordinator
