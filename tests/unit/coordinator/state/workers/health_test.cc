// Workers that are lost again and again, or give themselves up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/state_harness.h"

namespace longhaul::coordinator {
namespace {

using ::testing::HasSubstr;

class Health : public ::testing::Test {
 protected:
  void Submit(const std::vector<std::string>& workers, uint32_t attempts = 5) {
    workers_ = workers;
    for (const std::string& worker : workers) c.Join(worker);
    RunSpec spec = SmallSpec("tiny", 2);
    spec.recovery.attempts = attempts;
    spec.train.steps = 20;
    c.Tick(SubmitOf(spec, "tiny-1"));
    c.ToRunning(kAb, "tiny-1");
    c.Steps(kAb, "tiny-1", 1);
  }
  // B's process dies, and the next one says hello.
  void FlapB() {
    c.Die("b", "tiny-1", {{"a", 0}});
    c.Join(HelloOf("b", std::to_string(++b_)));
  }
  void GivesUp(const std::string& worker, v1::WorkerFault fault, const std::string& text) {
    v1::WorkerMessage message = c.About("tiny-1");
    message.mutable_error()->set_message(text);
    message.mutable_error()->set_restarts_for(fault);
    c.Tick(c.Said(worker, message));
  }
  v1::Hello AfterFault(const std::string& worker, v1::WorkerFault fault, const std::string& text) {
    v1::Hello hello = HelloOf(worker, std::to_string(++b_));
    hello.set_restarted_for(fault);
    hello.set_restart_cause(text);
    return hello;
  }
  v1::WorkerStatus StatusOf(const std::string& worker) {
    for (const v1::WorkerStatus& one : c.views().Workers(c.now)) {
      if (one.name() == worker) return one;
    }
    return {};
  }
  std::vector<std::string> StageNames() {
    std::vector<std::string> names;
    const v1::RunStatus status = *c.views().RunOf("tiny-1");
    for (const v1::StageStatus& stage : status.stages()) {
      names.push_back(stage.worker_name());
    }
    return names;
  }

  std::vector<std::string> workers_;
  int b_ = 1;
  Coordinator c;
};

TEST_F(Health, TheSecondLossInARowLeavesAWorkerOut) {
  Submit(kAb);
  FlapB();
  EXPECT_EQ(c.StateOf("tiny-1"), "preparing") << "once is forgiven";
  for (const std::string& worker : kAb) c.Ready(worker, "tiny-1", 0);
  FlapB();
  EXPECT_EQ(StatusOf("b").losses(), 2u);
  EXPECT_GT(StatusOf("b").left_out_seconds(), 20);
  bool said = false;
  for (const v1::Event& event : c.events) {
    said = said || event.text().find(
                       "worker b was lost 2 times in 2 s; it is left out of runs for "
                       "30 s, until ") != std::string::npos;
  }
  EXPECT_TRUE(said);
  // Nobody else is there: it waits until that time is over, and then takes it.
  for (int second = 0; second < 20; ++second) {
    ASSERT_THAT(c.StateOf("tiny-1"), ::testing::AnyOf("recovering", "queued")) << second;
    c.Pass(absl::Seconds(1), kAb);
  }
  for (int second = 0; second < 20; ++second) c.Pass(absl::Seconds(1), kAb);
  EXPECT_EQ(c.StateOf("tiny-1"), "planning");
  EXPECT_EQ(StatusOf("b").left_out_seconds(), 0);
}

TEST_F(Health, AnotherWorkerIsTakenInItsPlace) {
  Submit({"a", "b", "c"});
  FlapB();
  for (const std::string& worker : kAb) c.Ready(worker, "tiny-1", 0);
  FlapB();
  for (int second = 0; second < 5; ++second) c.Pass(absl::Seconds(1), {"a", "b", "c"});
  ASSERT_EQ(c.StateOf("tiny-1"), "planning");
  c.ToPreparing({"a", "c"}, "tiny-1");
  EXPECT_EQ(c.StateOf("tiny-1"), "preparing");
  EXPECT_THAT(StageNames(), ::testing::ElementsAre("a", "c"));
}

TEST_F(Health, ACheckpointBetweenTwoLossesIsAFreshStart) {
  Submit(kAb);
  for (uint64_t step = 2; step < 12; step += 2) {
    c.Steps(kAb, "tiny-1", step - 1);
    c.Steps(kAb, "tiny-1", step);
    c.Shards(kAb, "tiny-1", step);
    FlapB();
    ASSERT_EQ(c.StateOf("tiny-1"), "preparing") << step;
    for (const std::string& worker : kAb) c.Ready(worker, "tiny-1", step);
  }
  EXPECT_EQ(StatusOf("b").left_out_seconds(), 0);
}

TEST_F(Health, RestartsOfAWorkerThatDoesNothingDoNotCount) {
  for (int i = 0; i < 5; ++i) {
    c.Join(HelloOf("a", std::to_string(i)));
    c.Leave("a");
  }
  c.Join(HelloOf("a", "last"));
  EXPECT_EQ(StatusOf("a").losses(), 0u);
  EXPECT_EQ(StatusOf("a").left_out_seconds(), 0);
}

TEST_F(Health, AShortageNamesWhoIsLeftOut) {
  Submit(kAb);
  FlapB();
  for (const std::string& worker : kAb) c.Ready(worker, "tiny-1", 0);
  FlapB();
  c.Tick(SubmitOf(SmallSpec("other", 1), "other-1", 2));
  // A is kept for the first run.
  EXPECT_THAT(c.ReasonOf("other-1"), HasSubstr("b (left out after 2 losses)"));
}

TEST_F(Health, AHungStageIsNamedAndItsNextProcessIsWaitedFor) {
  Submit(kAb);
  GivesUp("b", v1::WORKER_FAULT_HUNG,
          "has made no progress for 61 s in step 2: in the backward pass of microbatch 3");
  EXPECT_EQ(c.StateOf("tiny-1"), "recovering") << "the process that ends is not assigned anything";
  EXPECT_EQ(c.ReasonOf("tiny-1"),
            "worker b (stage 1) has made no progress for 61 s in step 2: in the backward pass of "
            "microbatch 3");
  c.Join(AfterFault("b", v1::WORKER_FAULT_HUNG, "has made no progress for 61 s"));
  EXPECT_EQ(c.StateOf("tiny-1"), "preparing");
  EXPECT_EQ(StatusOf("b").losses(), 1u) << "what a process and the next one say is one loss";
}

TEST_F(Health, TheNextProcessSaysWhyWhereTheErrorWasNotHeard) {
  Submit(kAb);
  c.Join(AfterFault("b", v1::WORKER_FAULT_HUNG, "has made no progress for 61 s in step 2"));
  EXPECT_THAT(c.LastEvent("state"), HasSubstr("epoch 2"));
  bool said = false;
  for (const v1::Event& event : c.events) {
    said = said || event.text().find(
                       "it restarted itself: it has made no progress for 61 s in "
                       "step 2") != std::string::npos;
  }
  EXPECT_TRUE(said);
}

TEST_F(Health, ALostGpuLeavesItsWorkerOutAtOnce) {
  Submit({"a", "b", "c"});
  GivesUp("b", v1::WORKER_FAULT_DEVICE_LOST, "cuda:0: an illegal memory access was encountered");
  EXPECT_GT(StatusOf("b").left_out_seconds(), 20);
  EXPECT_THAT(c.LastEvent("worker"),
              HasSubstr("worker b lost its GPU; it is left out of runs for"));
  c.Tick();
  ASSERT_EQ(c.StateOf("tiny-1"), "preparing") << "c takes its place at once";
  EXPECT_THAT(StageNames(), ::testing::ElementsAre("a", "c"));
}

TEST_F(Health, WithoutRecoveryTheRunFailsWithTheSentence) {
  Submit(kAb, /*attempts=*/0);
  GivesUp("b", v1::WORKER_FAULT_DEVICE_LOST, "lost its GPU: unspecified launch failure");
  EXPECT_EQ(c.StateOf("tiny-1"), "failed");
  EXPECT_THAT(c.ReasonOf("tiny-1"),
              HasSubstr("worker b (stage 1) lost its GPU: unspecified launch failure; "));
}

TEST_F(Health, AGpuThatIsLostWhileLayersAreTimedIsNotTheRunsFault) {
  for (const std::string& worker : kAb) c.Join(worker);
  RunSpec spec = SmallSpec("tiny", 2);
  spec.recovery.attempts = 5;
  c.Tick(SubmitOf(spec, "tiny-1"));
  ASSERT_EQ(c.StateOf("tiny-1"), "planning");
  GivesUp("b", v1::WORKER_FAULT_DEVICE_LOST, "cuda:0: unspecified launch failure");
  EXPECT_EQ(c.StateOf("tiny-1"), "queued");
  EXPECT_THAT(c.ReasonOf("tiny-1"), HasSubstr("b (left out for a while)"));
}

}  // namespace
}  // namespace longhaul::coordinator
