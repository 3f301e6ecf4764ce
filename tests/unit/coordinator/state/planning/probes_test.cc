// Neighbours measure their links before a plan is made.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/support/state_harness.h"

namespace longhaul::coordinator {
namespace {

using ::testing::HasSubstr;

const std::vector<std::string> kAbcd = {"a", "b", "c", "d"};

class Probes : public ::testing::Test {
 protected:
  Probes() { c.probes_are_answered = false; }
  // All is in but the links.
  void ToLinks(const std::vector<std::string>& workers) {
    for (const std::string& worker : workers) c.Join(worker);
    c.Tick(SubmitOf(SmallSpec("tiny", workers.size()), "tiny-1"));
    c.ToPreparing(workers, "tiny-1");
    EXPECT_EQ(c.StateOf("tiny-1"), "planning");
  }
  const v1::ProbeLink& Asked(const std::string& worker) const {
    const v1::WorkerCommand* command = c.Last(worker, v1::WorkerCommand::kProbeLink);
    EXPECT_NE(command, nullptr) << worker;
    static const v1::ProbeLink none;
    return command == nullptr ? none : command->probe_link();
  }
  int Count(const std::string& worker) const {
    return c.Count(worker, v1::WorkerCommand::kProbeLink);
  }
  static auto Rate(double bits_per_second) {
    return [=](v1::LinkProbed& answer) { answer.set_goodput_bits_per_second(bits_per_second); };
  }
  static void Fail(v1::LinkProbed& answer) { answer.set_problem("nobody\nanswers"); }
  const Edge& PlannedEdge(size_t place) const {
    return c.records.at("tiny-1").plan->assignment.edges[place];
  }
  std::string LinkEvents() const {
    std::string all;
    for (const v1::Event& event : c.events) {
      if (event.kind() == "link") all += event.run_id() + ": " + event.text() + "\n";
    }
    return all;
  }

  Coordinator c;
};

TEST_F(Probes, BothEndsAreAskedAndOneDials) {
  ToLinks({"a", "b"});
  const v1::ProbeLink& above = Asked("a");
  const v1::ProbeLink& below = Asked("b");
  EXPECT_EQ(above.probe(), below.probe());
  EXPECT_EQ(above.transport(), "ucx");
  EXPECT_EQ(above.peer_name(), "b");
  EXPECT_FALSE(above.dial());
  EXPECT_TRUE(below.dial());
  ASSERT_EQ(below.addresses_size(), 1);
  EXPECT_EQ(below.addresses(0), "a:1");
  ASSERT_EQ(above.dialler_addresses_size(), 1);
  EXPECT_EQ(above.dialler_addresses(0), "b:1");
  EXPECT_GT(below.limit_seconds(), 0);
  EXPECT_EQ(above.link_secret(), below.link_secret());
  EXPECT_EQ(above.link_secret().size(), 32u);
}

TEST_F(Probes, NoWorkerIsPartOfTwoAtATime) {
  ToLinks(kAbcd);
  EXPECT_EQ(Asked("a").peer_name(), "b");
  EXPECT_EQ(Asked("b").peer_name(), "a");
  EXPECT_EQ(Asked("c").peer_name(), "d");
  EXPECT_EQ(Asked("d").peer_name(), "c");
  for (const char* worker : {"a", "b", "c"}) c.Probed(worker);
  for (const std::string& worker : kAbcd) EXPECT_EQ(Count(worker), 1);
  c.Probed("d");
  EXPECT_EQ(Asked("b").peer_name(), "c");
  EXPECT_EQ(Asked("c").peer_name(), "b");
  EXPECT_EQ(Count("a"), 1);
  EXPECT_EQ(Count("d"), 1);
  c.Probed("b");
  EXPECT_EQ(c.StateOf("tiny-1"), "planning");
  c.Probed("c");
  EXPECT_EQ(c.StateOf("tiny-1"), "preparing");
}

TEST_F(Probes, ThePlanAndTheListOfWorkersHaveWhatArrived) {
  ToLinks({"a", "b"});
  c.Probed("a", Rate(10e6));
  c.Probed("b", Rate(40e6));
  const Edge& edge = PlannedEdge(0);
  EXPECT_EQ(edge.forward.bits_per_second, 40e6);  // as it arrived at b
  EXPECT_EQ(edge.backward.bits_per_second, 10e6);
  EXPECT_DOUBLE_EQ(edge.forward.latency_seconds, 0.01);
  c.Advance(absl::Seconds(7));
  const std::vector<v1::MeasuredLink> links = c.views().Links(c.now);
  ASSERT_EQ(links.size(), 2u);
  EXPECT_EQ(links[0].from_worker(), "a");
  EXPECT_EQ(links[0].to_worker(), "b");
  EXPECT_EQ(links[0].transport(), "ucx");
  EXPECT_EQ(links[0].goodput_bits_per_second(), 40e6);
  EXPECT_DOUBLE_EQ(links[0].round_trip_seconds(), 0.02);
  EXPECT_DOUBLE_EQ(links[0].age_seconds(), 7);
  EXPECT_EQ(links[1].goodput_bits_per_second(), 10e6);
  // What the run's links carry is shown against it.
  const v1::RunStatus status = *c.views().RunOf("tiny-1");
  EXPECT_EQ(status.links(0).rate_bits_per_second(), 40e6);
  EXPECT_EQ(status.links(1).rate_bits_per_second(), 10e6);
}

TEST_F(Probes, OneStageHasNoLinks) {
  c.Join("a");
  c.Tick(SubmitOf(SmallSpec("alone", 1), "alone-1"));
  c.ToPreparing({"a"}, "alone-1");
  EXPECT_EQ(c.StateOf("alone-1"), "preparing");
  EXPECT_EQ(Count("a"), 0);
  // Its worker is of an older version, which does not say how long it took.
  EXPECT_EQ(c.LastEvent("note"), "layers are timed, within 0 s: worker a was the last");
}

TEST_F(Probes, WhatCannotBeMeasuredIsUnknownAndFailsNothing) {
  ToLinks({"a", "b"});
  c.Probed("a", Fail);
  c.Probed("b");
  EXPECT_EQ(c.StateOf("tiny-1"), "preparing");
  EXPECT_EQ(PlannedEdge(0).forward.bits_per_second, 0);
  EXPECT_EQ(LinkEvents(),
            "tiny-1: the link between worker a and worker b could not be measured, and the plan "
            "does not know its rate: nobody answers\n");
  EXPECT_TRUE(c.views().Links(c.now).empty());
}

TEST_F(Probes, RatesThatCannotBeAreNotBelieved) {
  ToLinks({"a", "b"});
  c.Probed("a", Rate(std::numeric_limits<double>::quiet_NaN()));
  c.Probed("b");
  EXPECT_EQ(c.StateOf("tiny-1"), "preparing");
  EXPECT_EQ(PlannedEdge(0).backward.bits_per_second, 0);
  EXPECT_THAT(LinkEvents(), HasSubstr("it reported rates or times that cannot be"));
}

TEST_F(Probes, WhoDoesNotAnswerIsNotWaitedForForEver) {
  ToLinks(kAbcd);
  for (const char* worker : {"a", "b", "c"}) c.Probed(worker);
  for (int i = 0; i < 30 && c.StateOf("tiny-1") == "planning"; ++i) {
    c.Advance(absl::Seconds(1));
    for (const std::string& worker : kAbcd) {
      v1::WorkerMessage alive;
      alive.mutable_heartbeat();
      c.Tick(c.Said(worker, alive));
    }
    if (Count("b") == 2) {
      c.Probed("b");
      c.Probed("c");
    }
  }
  EXPECT_EQ(c.StateOf("tiny-1"), "preparing");
  EXPECT_GT(PlannedEdge(0).forward.bits_per_second, 0);
  EXPECT_GT(PlannedEdge(1).forward.bits_per_second, 0);
  EXPECT_EQ(PlannedEdge(2).forward.bits_per_second, 0);
  EXPECT_THAT(LinkEvents(), HasSubstr("worker c and worker d could not be measured"));
  EXPECT_THAT(LinkEvents(), HasSubstr("no answer in time"));
  c.Probed("d");  // too late
  EXPECT_EQ(c.views().Links(c.now).size(), 4u);
}

TEST_F(Probes, ANewSessionIsAskedAgainUnlessItHasAnswered) {
  ToLinks({"a", "b"});
  const uint64_t probe = Asked("a").probe();
  c.Probed("a");
  c.Forget();
  c.Join("a");
  c.Join("b");
  EXPECT_EQ(Count("a"), 0);
  EXPECT_EQ(Asked("b").probe(), probe);
  EXPECT_TRUE(Asked("b").dial());
  c.Probed("b");
  EXPECT_EQ(c.StateOf("tiny-1"), "preparing");
}

TEST_F(Probes, SaidTwiceIsSaidOnce) {
  c.twice = true;
  ToLinks(kAbcd);
  for (const std::string& worker : kAbcd) c.Probed(worker);
  for (const char* worker : {"b", "c"}) c.Probed(worker);
  EXPECT_EQ(c.StateOf("tiny-1"), "preparing");
  EXPECT_EQ(Count("b"), 2);
  EXPECT_EQ(Count("a"), 1);
}

TEST_F(Probes, AnAnswerToSomethingElseCountsForNothing) {
  ToLinks({"a", "b"});
  c.Probed("a");
  const auto other = [&](v1::LinkProbed& answer) { answer.set_probe(Asked("b").probe() + 1); };
  c.Probed("b", other);
  EXPECT_EQ(c.StateOf("tiny-1"), "planning");
  v1::WorkerMessage message = Coordinator::ProbedOf(*c.Last("b", v1::WorkerCommand::kProbeLink));
  message.set_epoch(2);
  c.Tick(c.Said("b", message));
  EXPECT_EQ(c.StateOf("tiny-1"), "planning");
}

TEST_F(Probes, AWorkerLostMeanwhileFailsTheRun) {
  ToLinks({"a", "b"});
  c.Tick(event::WorkerLeft{c.sessions["b"], "closed"});
  EXPECT_EQ(c.StateOf("tiny-1"), "failed");
  EXPECT_THAT(c.ReasonOf("tiny-1"),
              HasSubstr("worker b was lost while its layers and links were timed"));
  EXPECT_EQ(c.Count("a", v1::WorkerCommand::kAbort), 1);
}

TEST_F(Probes, AnotherProcessOrAddressIsAnotherLink) {
  ToLinks({"a", "b"});
  c.Probed("a");
  c.Probed("b");
  EXPECT_EQ(c.views().Links(c.now).size(), 2u);
  c.Join("b");  // a new session: nothing has changed
  EXPECT_EQ(c.views().Links(c.now).size(), 2u);
  v1::Hello moved = HelloOf("b");
  moved.mutable_endpoints(0)->set_addresses(0, "elsewhere:1");
  c.Join(moved);
  EXPECT_TRUE(c.views().Links(c.now).empty());
}

TEST_F(Probes, LayerTimesAreShownWithTheirAgeAsLongAsTheProcessLives) {
  ToLinks({"a", "b"});
  c.Advance(absl::Seconds(3));
  const v1::WorkerStatus before = c.views().Workers(c.now)[0];
  EXPECT_EQ(before.measured_layers().model(),
            "gpt, hidden 64, context 64, microbatches of 1, fp32");
  EXPECT_GT(before.measured_layers().times().block_forward(), 0);
  EXPECT_DOUBLE_EQ(before.measured_layers().age_seconds(), 3);
  v1::Hello anew = HelloOf("a");
  anew.set_incarnation("another");
  c.Join(anew);
  EXPECT_FALSE(c.views().Workers(c.now)[0].has_measured_layers());
}

TEST_F(Probes, EventsSayHowLongPlanningWaitedForWhat) {
  const auto pass = [this](int seconds) {  // more without a tick would be a sleep
    for (int i = 0; i < 2 * seconds; ++i) {
      c.Advance(absl::Milliseconds(500));
      c.Tick();
    }
  };
  for (const char* worker : {"a", "b"}) c.Join(worker);
  c.Tick(SubmitOf(SmallSpec("tiny", 2), "tiny-1"));
  c.Data("tiny-1");
  pass(3);
  c.Times("a", "tiny-1", 1, /*taken=*/2, /*waited=*/0.01);
  pass(4);
  EXPECT_EQ(c.LastEvent("note"), "");
  c.Times("b", "tiny-1", 1, /*taken=*/1.5, /*waited=*/5);
  EXPECT_EQ(c.LastEvent("note"),
            "layers are timed, within 7 s: worker b was the last, took 1.5 s and waited 5 s for "
            "others on its GPU before");
  c.Probed("a");
  pass(2);
  EXPECT_THAT(c.LastEvent("note"), HasSubstr("layers"));
  c.Probed("b");
  EXPECT_EQ(c.LastEvent("note"), "measuring links took 2 s");
  EXPECT_EQ(c.StateOf("tiny-1"), "preparing");
}

TEST_F(Probes, OfAWorkerThatIsAwayAreNotShown) {
  ToLinks({"a", "b"});
  c.Probed("a");
  c.Probed("b");
  c.Tick(event::WorkerLeft{c.sessions["b"], "closed"});
  EXPECT_TRUE(c.views().Links(c.now).empty());
}

TEST_F(Probes, AreMadeForAPlanToo) {
  c.Join("a");
  c.Join("b");
  c.Tick(event::PlanAsked{RequestId(50), SmallSpec("tiny", 2), {}, RunId("plan-1"), "a secret"});
  c.Data("plan-1");
  for (const char* worker : {"a", "b"}) c.Times(worker, "plan-1", 1);
  c.Probed("a", Rate(5e6));
  EXPECT_EQ(c.LastReply<command::Reply<v1::PlanReply>>(), nullptr);
  c.Probed("b", Rate(5e6));
  const auto* reply = c.LastReply<command::Reply<v1::PlanReply>>();
  ASSERT_NE(reply, nullptr);
  ASSERT_TRUE(reply->reply.ok()) << reply->reply.status();
  EXPECT_EQ(reply->reply->plan().assignment().edges(0).forward().bits_per_second(), 5e6);
}

TEST_F(Probes, NothingIsMeasuredWhereAllIsAssumed) {
  c.Join("a");
  c.Join("b");
  event::PlanAsked asked{RequestId(50), SmallSpec("tiny", 2), {}, RunId("plan-1"), "a secret"};
  asked.submit.set_assumed_line_bits_per_second(8'000'000);
  asked.submit.set_assumed_delay_seconds(0.025);
  c.Tick(asked);
  c.Data("plan-1");
  for (const char* worker : {"a", "b"}) c.Times(worker, "plan-1", 1);
  EXPECT_EQ(Count("a"), 0);
  const auto* reply = c.LastReply<command::Reply<v1::PlanReply>>();
  ASSERT_NE(reply, nullptr);
  ASSERT_TRUE(reply->reply.ok()) << reply->reply.status();
  EXPECT_DOUBLE_EQ(reply->reply->plan().assignment().edges(0).forward().latency_seconds(), 0.025);
}

TEST_F(Probes, ARunThatAsksForNoMeasurementIsPlannedWithWhatIsKnown) {
  ToLinks({"a", "b"});
  for (const char* worker : {"a", "b"}) c.Probed(worker, Rate(5e6));
  c.Tick(event::StopAsked{RequestId(51), "tiny-1", /*now=*/true});
  c.Forget();
  RunSpec spec = SmallSpec("other", 2);
  spec.links.measure = false;
  c.Tick(SubmitOf(spec, "other-1", /*request=*/52));
  c.ToPreparing({"a", "b"}, "other-1");
  EXPECT_EQ(c.StateOf("other-1"), "preparing");
  EXPECT_EQ(Count("a"), 0);
  EXPECT_EQ(c.records.at("other-1").plan->assignment.edges[0].forward.bits_per_second, 5e6);
}

TEST_F(Probes, BeginAnewWithARestartedCoordinator) {
  ToLinks({"a", "b"});
  const std::string secret = Asked("a").link_secret();
  c.Probed("a");
  c.Restart();
  for (const char* worker : {"a", "b"}) c.Join(worker);
  EXPECT_EQ(c.StateOf("tiny-1"), "planning");
  c.Forget();
  c.ToPreparing({"a", "b"}, "tiny-1");
  EXPECT_EQ(c.StateOf("tiny-1"), "planning");
  EXPECT_NE(Asked("a").link_secret(), secret);
  c.Probed("a");
  c.Probed("b");
  EXPECT_EQ(c.StateOf("tiny-1"), "preparing");
}

}  // namespace
}  // namespace longhaul::coordinator
