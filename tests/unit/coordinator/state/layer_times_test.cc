// Layer times that a worker has measured before are used again when a run is resumed.
#include "coordinator/state/layer_times.h"

#include <gtest/gtest.h>

#include "tests/support/state_harness.h"

namespace longhaul::coordinator {
namespace {

class Reuse : public ::testing::Test {
 protected:
  void SetUp() override {
    c.Join("a");
    c.Join("b");
    c.Tick(SubmitOf(spec, "tiny-1"));
    c.ToRunning(kAb, "tiny-1");
    c.Steps(kAb, "tiny-1", 1);
    c.Shards(kAb, "tiny-1", 1);
    c.Tick(event::StopAsked{RequestId(2), "tiny-1", true});
    ASSERT_EQ(c.StateOf("tiny-1"), "stopped");
    c.Forget();
  }
  void Wait(absl::Duration duration) {
    for (absl::Duration waited; waited < duration; waited += absl::Seconds(1)) {
      c.Advance(absl::Seconds(1));
      for (const std::string& worker : kAb) {
        v1::WorkerMessage heartbeat;
        heartbeat.mutable_heartbeat();
        c.Tick(c.Said(worker, heartbeat));
      }
    }
  }
  void Resume() { c.Tick(SubmitOf(spec, "unused", 3, true)); }
  int Measured(const std::string& worker) const {
    return c.Count(worker, v1::WorkerCommand::kMeasure);
  }
  // What is left to do without times.
  void Finish() {
    c.Data("tiny-1");
    for (const std::string& worker : kAb) c.Checked(worker);
  }
  RunSpec spec = SmallSpec("tiny", 2);
  Coordinator c;
};

TEST_F(Reuse, AResumedRunOnTheSameWorkersTimesNothing) {
  Wait(absl::Minutes(9));
  spec.links.measure = false;
  spec.train.steps = 9;
  Resume();
  for (const std::string& worker : kAb) EXPECT_EQ(Measured(worker), 0);
  EXPECT_EQ(c.LastEvent("note"),
            "these layers were timed within the last 9m00s on a, b: those times are used again");
  Finish();
  EXPECT_EQ(c.StateOf("tiny-1"), "preparing");
  EXPECT_EQ(c.records.at("tiny-1").plan->cells[0].forward_seconds, 0.002);
}

TEST_F(Reuse, TimesGrowOld) {
  Wait(absl::Minutes(11));
  Resume();
  for (const std::string& worker : kAb) EXPECT_EQ(Measured(worker), 1);
}

// Who still ends its last epoch would not be there when the other end of a link is.
TEST_F(Reuse, WhereLinksAreMeasuredAWorkerHasToBeThroughWithItsLastEpoch) {
  v1::WorkerMessage beat;
  beat.mutable_heartbeat()->mutable_resident()->set_run_id("tiny-1");
  c.Tick(event::WorkerSaid{c.sessions["a"], beat});
  Resume();
  EXPECT_EQ(Measured("a"), 0);
  EXPECT_EQ(Measured("b"), 1);
}

TEST_F(Reuse, AnotherProcessTimesItsLayers) {
  spec.links.measure = false;
  c.Tick(event::WorkerLeft{c.sessions["b"], "closed"});
  c.Join(HelloOf("b", "2"));
  Resume();
  EXPECT_EQ(Measured("a"), 0);
  EXPECT_EQ(Measured("b"), 1);
  Finish();
  EXPECT_EQ(c.StateOf("tiny-1"), "planning");
  c.Times("b", "tiny-1", 2);
  EXPECT_EQ(c.StateOf("tiny-1"), "preparing");
}

TEST_F(Reuse, OtherCodecsAreTimed) {
  spec.links.codecs.forward = "bf16";
  Resume();
  for (const std::string& worker : kAb) EXPECT_EQ(Measured(worker), 1);
}

TEST_F(Reuse, ANewRunTimesItsLayers) {
  c.Tick(SubmitOf(SmallSpec("other", 2), "other-1", 4));
  for (const std::string& worker : kAb) EXPECT_EQ(Measured(worker), 1);
}

TEST(HaveSameLayerTimes, UnlessAKeyDiffersThatTheyMayDependOn) {
  const RunSpec spec = SmallSpec("tiny", 2);
  const auto same_after = [&](const auto& change) {
    RunSpec other = spec;
    change(other);
    return HaveSameLayerTimes(spec, other);
  };
  EXPECT_TRUE(same_after([](RunSpec&) {}));
  EXPECT_TRUE(same_after([](RunSpec& s) { s.name = "other"; }));
  EXPECT_TRUE(same_after([](RunSpec& s) { s.train.steps = 77; }));
  EXPECT_TRUE(same_after([](RunSpec& s) { s.links.measure = false; }));
  EXPECT_TRUE(same_after([](RunSpec& s) { s.pipeline.stages = 4; }));
  EXPECT_FALSE(same_after([](RunSpec& s) { s.model.hidden = 128; }));
  EXPECT_FALSE(same_after([](RunSpec& s) { s.model.context = 128; }));
  EXPECT_FALSE(same_after([](RunSpec& s) { s.train.microbatch_size = 2; }));
  EXPECT_FALSE(same_after([](RunSpec& s) { s.train.dtype = ComputeDtype::kBf16; }));
  EXPECT_FALSE(same_after([](RunSpec& s) { s.pipeline.threads_per_stage = 2; }));
  EXPECT_FALSE(same_after([](RunSpec& s) { s.pipeline.recompute = Recompute::kStage; }));
  EXPECT_FALSE(same_after([](RunSpec& s) { s.links.codecs.backward = "bf16"; }));
  EXPECT_FALSE(same_after([](RunSpec& s) { s.data.tokenizer = "gpt2"; }));
  EXPECT_FALSE(same_after([](RunSpec& s) { s.group.tensor = 2; }));
}

TEST(HaveSameLayerTimes, WhereAllGroupsWereTimedOneOfThemIs) {
  RunSpec timed = SmallSpec("tiny", 2);
  timed.group = {.tensor_auto = true, .expert_auto = true, .forward = GroupCollective::kZip};
  for (const uint32_t ranks : {1, 2, 4}) {
    for (const uint32_t parts : {1, 2}) {
      if (parts > ranks) continue;
      RunSpec settled = timed;
      settled.group = timed.group.Settled(ranks, parts);
      EXPECT_TRUE(HaveSameLayerTimes(timed, settled));
      EXPECT_FALSE(HaveSameLayerTimes(settled, timed));
    }
  }
  RunSpec other = timed;
  other.group = {.tensor = 2, .forward = GroupCollective::kTaco};
  EXPECT_FALSE(HaveSameLayerTimes(timed, other));
}

// What the file says is all that was timed.
TEST(HaveSameLayerTimes, ANumberThatWasNotOpenIsNotAnother) {
  RunSpec timed = SmallSpec("tiny", 2);
  timed.group = {.expert = 2, .tensor_auto = true};
  RunSpec other = timed;
  other.group = {.tensor = 4, .expert = 4};
  EXPECT_FALSE(HaveSameLayerTimes(timed, other));
  other.group.expert = 2;
  EXPECT_TRUE(HaveSameLayerTimes(timed, other));
  timed.group = {.tensor = 4, .expert_auto = true};
  EXPECT_TRUE(HaveSameLayerTimes(timed, other));
  other.group.tensor = 2;
  EXPECT_FALSE(HaveSameLayerTimes(timed, other));
}

TEST(IsPlausible, ChecksGroups) {
  v1::LayerTimes times = SmallTimes();
  EXPECT_TRUE(IsPlausible(times));
  times.mutable_groups(0)->mutable_block()->set_collective_seconds(-1);
  EXPECT_FALSE(IsPlausible(times));
}

}  // namespace
}  // namespace longhaul::coordinator
