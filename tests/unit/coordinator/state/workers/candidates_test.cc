// A plan that chooses among all workers that are free: which are asked for what, and what becomes
// of those that it does not take.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/support/state_harness.h"

namespace longhaul::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CandidatesTest : public ::testing::Test {
 protected:
  static RunSpec Spec(uint32_t stages) {
    RunSpec spec = SmallSpec("tiny", stages);
    spec.pipeline.placement = PlacementKind::kAuto;
    return spec;
  }
  void Submit(const std::vector<std::string>& workers, const RunSpec& spec) {
    for (const std::string& worker : workers) c.Join(worker);
    c.Tick(SubmitOf(spec, "tiny-1"));
  }
  // Every candidate is asked for its layers' times. These are `fast` times as fast of one.
  void Time(const std::vector<std::string>& workers, const std::string& fast = "") {
    c.Data("tiny-1");
    for (const std::string& worker : workers) {
      v1::WorkerMessage message = c.About("tiny-1");
      *message.mutable_layer_times() = SmallTimes();
      if (worker == fast) {
        message.mutable_layer_times()->set_block_forward(0.0001);
        message.mutable_layer_times()->set_block_backward(0.0002);
      }
      c.Tick(c.Said(worker, message));
    }
  }
  std::vector<std::string> Placed() const {
    std::vector<std::string> names;
    for (const Cell& cell : c.records.at("tiny-1").plan->assignment.cells) {
      names.push_back(cell.worker_name);
    }
    return names;
  }
  int Probes(const std::string& worker, bool round_trips_only) const {
    int count = 0;
    for (const Command& command : c.commands) {
      const auto* to = std::get_if<command::ToWorker>(&command);
      if (to == nullptr || to->session != c.sessions.at(worker)) continue;
      if (!to->message.has_probe_link()) continue;
      count += to->message.probe_link().round_trips_only() == round_trips_only ? 1 : 0;
    }
    return count;
  }

  Coordinator c;
};

TEST_F(CandidatesTest, AFastWorkerWithTheLastNameIsTakenAndTheRestAreFree) {
  Submit({"a", "b", "z"}, Spec(2));
  for (const char* worker : {"a", "b", "z"}) {
    EXPECT_EQ(c.Count(worker, v1::WorkerCommand::kMeasure), 1) << worker;
  }
  Time({"a", "b", "z"}, "z");
  ASSERT_EQ(c.StateOf("tiny-1"), "preparing");
  const std::vector<std::string> placed = Placed();
  EXPECT_EQ(std::ranges::count(placed, "z"), 1);
  // Another run may have the third one at once.
  RunSpec other = Spec(1);
  other.name = "other";
  c.Tick(SubmitOf(other, "other-1", 2));
  EXPECT_EQ(c.StateOf("other-1"), "planning");
}

TEST_F(CandidatesTest, NamesTakesTheFirstAndAsksNobodyElse) {
  RunSpec spec = Spec(2);
  spec.pipeline.placement = PlacementKind::kNames;
  Submit({"a", "b", "z"}, spec);
  EXPECT_EQ(c.Count("z", v1::WorkerCommand::kMeasure), 0);
  Time({"a", "b"});
  EXPECT_THAT(Placed(), ElementsAre("a", "b"));
}

TEST_F(CandidatesTest, AlikeWorkersStandByName) {
  Submit({"a", "b", "c"}, Spec(2));
  Time({"a", "b", "c"});
  EXPECT_THAT(Placed(), ElementsAre("a", "b"));
  // All three pairs were measured, one after another.
  for (const char* worker : {"a", "b", "c"}) {
    EXPECT_EQ(Probes(worker, /*round_trips_only=*/false), 2) << worker;
    EXPECT_EQ(Probes(worker, /*round_trips_only=*/true), 0) << worker;
  }
}

TEST_F(CandidatesTest, ManyMeasureRoundTripsOfAllPairsAndGoodputOfFew) {
  const std::vector<std::string> workers = {"a", "b", "c", "d", "e", "f"};
  Submit(workers, Spec(4));
  Time(workers);
  ASSERT_EQ(c.StateOf("tiny-1"), "preparing");
  int goodput = 0;
  for (const std::string& worker : workers) {
    EXPECT_EQ(Probes(worker, /*round_trips_only=*/true), 5) << worker;
    EXPECT_GE(Probes(worker, /*round_trips_only=*/false), 1) << worker;
    goodput += Probes(worker, /*round_trips_only=*/false);
  }
  EXPECT_LE(goodput / 2, 15);  // pairs
  // Whatever a plan relies on was measured before it was adopted.
  for (const Edge& edge : c.records.at("tiny-1").plan->assignment.edges) {
    EXPECT_EQ(edge.forward.bits_per_second, 100e6);
  }
  EXPECT_EQ(c.records.at("tiny-1").plan->explanation.find("estimated"), std::string::npos);
}

TEST_F(CandidatesTest, OneRegionMeasuresFewPairsAndWhatThePlanUses) {
  c.probes_are_answered = false;
  const std::vector<std::string> workers = {"a", "b", "c", "d", "e", "f"};
  Submit(workers, Spec(4));
  Time(workers);
  std::set<uint64_t> answered;
  int goodput = 0;
  for (bool some = true; some && c.StateOf("tiny-1") == "planning";) {
    some = false;
    for (const std::string& worker : workers) {
      const v1::WorkerCommand* asked = c.Last(worker, v1::WorkerCommand::kProbeLink);
      if (asked == nullptr) continue;
      const v1::ProbeLink& probe = asked->probe_link();
      const bool is_new = answered.insert(2 * probe.probe() + (probe.dial() ? 1 : 0)).second;
      if (!is_new) continue;
      goodput += probe.round_trips_only() ? 0 : 1;
      some = true;
      c.Probed(worker, [](v1::LinkProbed& answer) { answer.set_round_trip_seconds(0.001); });
    }
  }
  EXPECT_EQ(c.StateOf("tiny-1"), "preparing");
  // Three pairs of neighbours and one more of the plan's.
  EXPECT_LE(goodput / 2, 5);
}

TEST_F(CandidatesTest, WithoutMeasuringThePlanKnowsWhatEarlierOnesMeasured) {
  RunSpec spec = Spec(2);
  spec.links.measure = false;
  Submit({"a", "b", "c"}, spec);
  Time({"a", "b", "c"});
  EXPECT_EQ(c.StateOf("tiny-1"), "preparing");
  EXPECT_EQ(c.Count("a", v1::WorkerCommand::kProbeLink), 0);
}

TEST_F(CandidatesTest, OneStageIsGivenToTheFastestAndMeasuresNoLinks) {
  Submit({"a", "b", "c"}, Spec(1));
  Time({"a", "b", "c"}, "b");
  EXPECT_THAT(Placed(), ElementsAre("b"));
  EXPECT_EQ(c.Count("a", v1::WorkerCommand::kProbeLink), 0);
}

TEST_F(CandidatesTest, ThePlanDoesWithoutAWorkerThatCannotTimeItsLayers) {
  Submit({"a", "b", "c"}, Spec(2));
  c.Error("a", "tiny-1", "no memory");
  EXPECT_EQ(c.StateOf("tiny-1"), "planning");
  EXPECT_THAT(c.LastEvent("note"), HasSubstr("the plan does without a"));
  Time({"b", "c"});
  EXPECT_THAT(Placed(), ElementsAre("b", "c"));
}

TEST_F(CandidatesTest, ThePlanDoesWithoutAWorkerWhoseTimesDoNotCome) {
  Submit({"a", "b", "c"}, Spec(2));
  Time({"a", "c"});
  EXPECT_EQ(c.StateOf("tiny-1"), "planning");
  c.Pass(StateOptions().measure_timeout + absl::Seconds(1), {"a", "b", "c"});
  EXPECT_EQ(c.StateOf("tiny-1"), "preparing");
  EXPECT_THAT(Placed(), ElementsAre("a", "c"));
}

TEST_F(CandidatesTest, ThePlanChoosesTheNumberOfReplicasAndTheRunKeepsIt) {
  RunSpec spec = Spec(2);
  spec.pipeline.stages.reset();
  spec.replicas.count_auto = true;
  spec.links.measure = false;  // so that nothing speaks against exchanging gradients
  const std::vector<std::string> workers = {"a", "b", "c", "d"};
  Submit(workers, spec);
  Time(workers);
  ASSERT_EQ(c.StateOf("tiny-1"), "preparing");
  EXPECT_EQ(Placed().size(), 4u);
  const RunSpec& settled = c.records.at("tiny-1").spec;
  EXPECT_EQ(settled.replicas.count, 2u);
  EXPECT_FALSE(settled.replicas.count_auto);
  EXPECT_EQ(settled.train.microbatches, 1u);
  EXPECT_EQ(c.views().RunOf("tiny-1")->replicas_wanted(), 2u);
  EXPECT_THAT(c.LastEvent("note"), HasSubstr("pipeline.replicas: the plan chose 2, so "
                                             "train.microbatches are 1 of each"));
  EXPECT_THAT(c.Last("a", v1::WorkerCommand::kAssign)->assign().assignment().run_yaml(),
              HasSubstr("replicas: 2"));
  // Gone on with by the same file on fewer workers, it has two replicas, for which it waits.
  c.Error("a", "tiny-1", "boom");
  c.Forget();
  c.Leave("d");
  c.Leave("c");
  c.Leave("b");
  c.Tick(SubmitOf(spec, "unused", 7, /*resume=*/true));
  ASSERT_TRUE(c.LastReply<command::Reply<v1::SubmitReply>>()->reply.ok());
  EXPECT_EQ(c.records.at("tiny-1").spec.replicas.count, 2u);
  EXPECT_EQ(c.StateOf("tiny-1"), "queued");
}

TEST_F(CandidatesTest, ReplicasAreChosenWithoutAWorkerThatCannotTimeItsLayers) {
  RunSpec spec = Spec(1);
  spec.replicas.count_auto = true;
  spec.links.measure = false;
  Submit({"a", "b", "c"}, spec);
  c.Error("a", "tiny-1", "no memory");
  EXPECT_EQ(c.StateOf("tiny-1"), "planning");
  Time({"b", "c"});
  EXPECT_THAT(Placed(), ElementsAre("b", "c"));
  EXPECT_EQ(c.records.at("tiny-1").spec.replicas.count, 2u);
}

TEST_F(CandidatesTest, ReplicasKeepTheirNumberUntilThePlanHasChosenIt) {
  RunSpec spec = Spec(1);
  spec.replicas.count_auto = true;
  spec.links.measure = false;
  Submit({"a", "b"}, spec);
  ASSERT_EQ(c.StateOf("tiny-1"), "planning");
  const auto ask = [&] {
    c.Tick(event::ReplicasAsked{RequestId(77), "tiny-1", 1});
    const auto& reply = c.LastReply<command::Reply<v1::ReplicasReply>>()->reply;
    return reply.ok() ? reply->message() : std::string(Message(reply.status()));
  };
  EXPECT_THAT(ask(), HasSubstr("leaves the number of its replicas to its first plan"));
  Time({"a", "b"});
  EXPECT_EQ(c.records.at("tiny-1").ReplicasWanted(), 2u);
  EXPECT_THAT(ask(), HasSubstr("goes on with 1 replica instead of 2"));
}

TEST_F(CandidatesTest, SparesAreSetApartWhereReplicasAreChosen) {
  RunSpec spec = Spec(1);
  spec.replicas.count_auto = true;
  spec.links.measure = false;
  spec.recovery.spares = 2;
  Submit({"a", "b", "c"}, spec);
  Time({"a", "b", "c"});
  EXPECT_EQ(Placed().size(), 1u);
}

TEST_F(CandidatesTest, CodecsThatThePlanChoseStay) {
  RunSpec spec = Spec(2);
  spec.links.codecs = {"auto", "auto"};
  Submit(kAb, spec);
  Time(kAb);
  ASSERT_EQ(c.StateOf("tiny-1"), "preparing");
  const std::vector<std::vector<CodecPair>> chosen = c.records.at("tiny-1").spec.links.chosen;
  ASSERT_EQ(chosen.size(), 1u);
  const Edge& edge = c.records.at("tiny-1").plan->assignment.edges[0];
  EXPECT_EQ(chosen[0][0], (CodecPair{edge.forward.codec, edge.backward.codec}));
  EXPECT_THAT(c.Last("a", v1::WorkerCommand::kAssign)->assign().assignment().run_yaml(),
              HasSubstr("chosen:"));
  c.Error("a", "tiny-1", "boom");
  c.Forget();
  c.Tick(SubmitOf(spec, "unused", 7, /*resume=*/true));
  ASSERT_TRUE(c.LastReply<command::Reply<v1::SubmitReply>>()->reply.ok());
  EXPECT_EQ(c.records.at("tiny-1").spec.links.chosen, chosen);
  // Within another error they are chosen anew.
  c.Error("a", "tiny-1", "boom");
  Time(kAb);
  c.Error("a", "tiny-1", "boom");
  c.Forget();
  spec.links.error = 0.5;
  c.Tick(SubmitOf(spec, "unused", 8, /*resume=*/true));
  ASSERT_TRUE(c.LastReply<command::Reply<v1::SubmitReply>>()->reply.ok());
  EXPECT_TRUE(c.records.at("tiny-1").spec.links.chosen.empty());
}

TEST_F(CandidatesTest, AResumedRunHasItsWorkersInTheirPlaces) {
  Submit({"a", "b", "z"}, Spec(2));
  Time({"a", "b", "z"}, "z");
  const std::vector<std::string> placed = Placed();
  for (const std::string& worker : placed) c.Ready(worker, "tiny-1");
  for (uint64_t step = 1; step <= 2; ++step) c.Steps(placed, "tiny-1", step);
  c.Shards(placed, "tiny-1", 2);
  c.Tick(event::StopAsked{RequestId(3), "tiny-1"});
  for (const std::string& worker : placed) c.Finished(worker, "tiny-1", 2, /*stopped=*/true);
  ASSERT_EQ(c.StateOf("tiny-1"), "stopped");
  c.Tick(SubmitOf(Spec(2), "tiny-2", 4, /*resume=*/true));
  c.ToPreparing(placed, "tiny-1");
  EXPECT_EQ(Placed(), placed);
}

TEST_F(CandidatesTest, APlanIsSubmittedThoughTheFirstByNameCannotTalk) {
  c.reach_is_answered = false;
  for (const char* worker : {"a", "b", "c"}) c.Join(worker);
  for (const char* worker : {"a", "b", "c"}) {
    for (const Command& command : std::vector<Command>(c.commands)) {
      const auto* to = std::get_if<command::ToWorker>(&command);
      if (to == nullptr || to->session != c.sessions.at(worker)) continue;
      const v1::TryReach& ask = to->message.try_reach();
      if (!ask.dial()) continue;
      const bool cut =
          std::set<std::string>{worker, ask.peer_name()} == std::set<std::string>{"a", "b"};
      v1::WorkerMessage message;
      message.mutable_reach_tried()->set_check(ask.check());
      message.mutable_reach_tried()->add_problems(cut ? "no route" : "");
      c.Tick(c.Said(worker, message));
    }
  }
  c.Forget();
  c.reach_is_answered = true;
  c.Tick(SubmitOf(Spec(2), "tiny-1"));
  Time({"a", "b", "c"});
  ASSERT_EQ(c.StateOf("tiny-1"), "preparing");
  EXPECT_THAT(Placed(), ::testing::Contains("c"));
}

}  // namespace
}  // namespace longhaul::coordinator
