// Runs wait for workers; `longhaul plan` does not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/state_harness.h"

namespace longhaul::coordinator {
namespace {

using ::testing::HasSubstr;

event::PlanAsked PlanOf(const RunSpec& spec, const std::string& id) {
  return {RequestId(50), spec, {}, RunId(id), "secret of " + id};
}

TEST(Queue, SaysWhatItWaitsFor) {
  Coordinator c;
  for (const char* name : {"a", "b", "c"}) c.Join(name);
  c.Tick(SubmitOf(SmallSpec("tiny", 4), "tiny-1"));
  EXPECT_EQ(c.StateOf("tiny-1"), "queued");
  EXPECT_EQ(c.ReasonOf("tiny-1"), "needs 4 workers, 3 connected: a, b, c");
  EXPECT_EQ(c.LastReply<command::Reply<v1::SubmitReply>>()->reply->notes(0), c.ReasonOf("tiny-1"));
  c.Tick(event::WorkerLeft{c.sessions["c"], "closed"});
  EXPECT_EQ(c.ReasonOf("tiny-1"), "needs 4 workers, 2 connected: a, b");
  c.Join("c");
  c.Join("d");
  EXPECT_EQ(c.StateOf("tiny-1"), "planning");
  EXPECT_EQ(c.ReasonOf("tiny-1"), "");
}

TEST(Queue, NobodyConnected) {
  Coordinator c;
  c.Tick(SubmitOf(SmallSpec("tiny", {}), "tiny-1"));
  EXPECT_EQ(c.ReasonOf("tiny-1"), "needs 1 worker, 0 connected");
}

TEST(Queue, AutoTakesWhatIsThereUpToTheLayers) {
  Coordinator c;
  for (int i = 12; i >= 1; --i) c.Join(fmt::format("worker{}", i));
  c.Tick(SubmitOf(SmallSpec("tiny", {}), "tiny-1"));
  const auto status = *c.views().RunOf("tiny-1");
  ASSERT_EQ(status.stages_size(), 4);
  EXPECT_EQ(status.stages(0).worker_name(), "worker1");
  EXPECT_EQ(status.stages(3).worker_name(), "worker4");
}

// A worker on the CPU with a device for each of so many ranks.
v1::Hello WithDevices(const std::string& name, int devices) {
  v1::Hello hello = HelloOf(name);
  while (hello.devices_size() < devices) *hello.add_devices() = hello.devices(0);
  return hello;
}

TEST(Queue, AGroupTakesWorkersThatHaveADeviceForEachRank) {
  Coordinator c;
  c.Join("a");
  c.Join(WithDevices("b", 2));
  c.Join("c");
  c.Join(WithDevices("d", 3));
  RunSpec spec = SmallSpec("tiny", 2);
  spec.group.tensor = 2;
  c.Tick(SubmitOf(spec, "tiny-1"));
  auto status = *c.views().RunOf("tiny-1");
  ASSERT_EQ(status.stages_size(), 2);
  EXPECT_EQ(status.stages(0).worker_name(), "b");
  EXPECT_EQ(status.stages(1).worker_name(), "d");
  c.Tick(event::StopAsked{RequestId(3), "tiny", true});

  spec = SmallSpec("auto", {});
  spec.group.tensor = 2;
  c.Tick(SubmitOf(spec, "auto-1", 2));
  status = *c.views().RunOf("auto-1");
  ASSERT_EQ(status.stages_size(), 2) << "those without enough devices do not count";
}

TEST(Queue, AGroupThatNobodyHasDevicesForIsRefused) {
  Coordinator c;
  c.Join("a");
  c.Join(WithDevices("b", 2));
  RunSpec spec = SmallSpec("tiny", 2);
  spec.group.tensor = 2;
  c.Tick(SubmitOf(spec, "tiny-1"));
  const Status refused = c.LastReply<command::Reply<v1::SubmitReply>>()->reply.status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(Message(refused)), HasSubstr("worker a offers 1 on its CPU"));
}

TEST(Queue, TwoRunsTakeTurns) {
  Coordinator c;
  c.Join("a");
  c.Join("b");
  c.Tick(SubmitOf(SmallSpec("one", 2), "one-1"), SubmitOf(SmallSpec("two", 2), "two-1", 2));
  EXPECT_EQ(c.StateOf("one-1"), "planning");
  EXPECT_EQ(c.ReasonOf("two-1"),
            "needs 2 free workers, 2 connected: a (busy with one-1), b (busy with one-1)");
  c.ToRunning(kAb, "one-1");
  c.Tick(event::StopAsked{RequestId(3), "one", true});
  EXPECT_EQ(c.StateOf("two-1"), "planning");
  c.ToRunning(kAb, "two-1");
  EXPECT_EQ(c.StateOf("two-1"), "running");
}

TEST(Queue, ARunThatFitsOvertakesOneThatWaits) {
  Coordinator c;
  c.Join("a");
  c.Join("b");
  c.Tick(SubmitOf(SmallSpec("large", 3), "large-1"), SubmitOf(SmallSpec("small", 1), "small-1", 2));
  EXPECT_EQ(c.StateOf("large-1"), "queued");
  EXPECT_EQ(c.StateOf("small-1"), "planning");
}

// All stages get the same type, which the run keeps.
TEST(Queue, WhereTheRunFileLeavesTheDtypeOpenTheWorkersSettleIt) {
  const auto hello = [](const std::string& name, const std::string& kind) {
    v1::Hello said = HelloOf(name);
    said.mutable_devices(0)->set_kind(kind);
    return said;
  };
  const auto settled = [&](const std::string& a, const std::string& b, ComputeDtype asked) {
    Coordinator c;
    c.Join(hello("a", a));
    c.Join(hello("b", b));
    RunSpec spec = SmallSpec("tiny", 2);
    spec.train.dtype = asked;
    c.Tick(SubmitOf(spec, "tiny-1"));
    const std::string measured = c.Last("a", v1::WorkerCommand::kMeasure)->measure().run_yaml();
    c.ToPreparing(kAb, "tiny-1");
    for (const std::string& worker : kAb) {
      EXPECT_EQ(c.Last(worker, v1::WorkerCommand::kAssign)->assign().assignment().run_yaml(),
                measured);
    }
    const size_t key = measured.find("dtype: ");
    return key == std::string::npos ? "none" : measured.substr(key + 7, 4);
  };
  EXPECT_EQ(settled("cuda", "cuda", ComputeDtype::kAuto), "bf16");
  EXPECT_EQ(settled("cpu", "cpu", ComputeDtype::kAuto), "fp32");
  EXPECT_EQ(settled("cuda", "cpu", ComputeDtype::kAuto), "fp32");
  EXPECT_EQ(settled("cuda", "cuda", ComputeDtype::kFp32), "fp32");
  EXPECT_EQ(settled("cpu", "cpu", ComputeDtype::kBf16), "bf16");
}

TEST(Queue, ANameMayRunTwice) {
  Coordinator c;
  c.Join("a");
  c.Join("b");
  c.Tick(SubmitOf(SmallSpec("tiny", 1), "tiny-1"));
  c.Tick(SubmitOf(SmallSpec("tiny", 1), "tiny-2", 2));
  EXPECT_EQ(c.StateOf("tiny-1"), "planning");
  EXPECT_EQ(c.StateOf("tiny-2"), "planning");
  EXPECT_EQ(c.views().RunOf("tiny")->run_id(), "tiny-2");  // the newest of that name
  EXPECT_EQ(c.views().Runs()[0].run_id(), "tiny-2");
}

TEST(Queue, HasAnEnd) {
  Coordinator c;
  int queued = 0;
  while (queued < 10'000) {
    c.Tick(SubmitOf(SmallSpec("tiny", 4), fmt::format("tiny-{}", queued)));
    if (!c.LastReply<command::Reply<v1::SubmitReply>>()->reply.ok()) break;
    ++queued;
  }
  EXPECT_EQ(queued, 500);
  const Status status = c.LastReply<command::Reply<v1::SubmitReply>>()->reply.status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(Message(status)), HasSubstr("500 runs wait for workers already"));
}

// A user who is no admin has a share, and the others go on.
TEST(Queue, AMemberHasAShare) {
  StateOptions options;
  options.limits.queued_runs.of_member = 2;
  options.limits.runs.of_member = 3;
  options.limits.run_bytes.of_member = 3000;
  Coordinator c({}, options);
  uint64_t number = 0;
  const auto submit = [&](const std::string& owner, bool may_all, size_t bytes = 0) -> std::string {
    event::Submitted asked = SubmitOf(SmallSpec("tiny", 4), fmt::format("tiny-{}", ++number));
    asked.by = {.name = owner, .may_all = may_all};
    asked.submit.set_run_yaml(std::string(bytes, ' '));
    c.Tick(std::move(asked));
    return std::string(Message(c.LastReply<command::Reply<v1::SubmitReply>>()->reply.status()));
  };
  EXPECT_EQ(submit("bob", false), "");
  EXPECT_THAT(submit("bob", false, 5000), HasSubstr("run files of bob"));
  EXPECT_EQ(submit("bob", false), "");
  EXPECT_THAT(submit("bob", false), HasSubstr("2 runs of bob wait for workers"));
  EXPECT_EQ(submit("eve", false), "");
  for (int i = 0; i < 5; ++i) EXPECT_EQ(submit("ann", true, 5000), "");
  // Runs that have ended count as runs.
  c.Tick(event::StopAsked{.request = RequestId(77), .run = "tiny-1", .now = true});
  EXPECT_EQ(submit("bob", false), "");
  c.Tick(event::StopAsked{.request = RequestId(78), .run = "tiny-3", .now = true});
  EXPECT_THAT(submit("bob", false), HasSubstr("bob has 3 runs here"));
  c.Tick(event::RemoveAsked{.request = RequestId(79), .run = "tiny-1"});
  EXPECT_EQ(submit("bob", false), "");
}

TEST(PlanRequest, IsAnsweredAndForgotten) {
  Coordinator c;
  c.Join("a");
  c.Join("b");
  c.Tick(PlanOf(SmallSpec("tiny", 2), "plan-1"));
  EXPECT_EQ(c.Count("a", v1::WorkerCommand::kMeasure), 1);
  c.Data("plan-1");
  c.Times("a", "plan-1", 1);
  EXPECT_EQ(c.LastReply<command::Reply<v1::PlanReply>>(), nullptr);
  c.Times("b", "plan-1", 1);
  const auto* reply = c.LastReply<command::Reply<v1::PlanReply>>();
  ASSERT_NE(reply, nullptr);
  ASSERT_TRUE(reply->reply.ok()) << reply->reply.status();
  EXPECT_EQ(reply->reply->plan().assignment().cells_size(), 2);
  EXPECT_TRUE(c.views().Runs().empty());
  EXPECT_EQ(c.views().Workers(c.now)[0].run_id(), "");
  EXPECT_EQ(c.Count("a", v1::WorkerCommand::kAssign), 0);
}

TEST(PlanRequest, IsForTheNetworkThatTheUserAssumes) {
  Coordinator c;
  c.Join("a");
  c.Join("b");
  event::PlanAsked asked = PlanOf(SmallSpec("tiny", 2), "plan-1");
  asked.submit.set_assumed_line_bits_per_second(1'000'000);
  asked.submit.set_assumed_delay_seconds(0.25);
  c.Tick(asked);
  c.Data("plan-1");
  c.Times("a", "plan-1", 1);
  c.Times("b", "plan-1", 1);
  const auto* reply = c.LastReply<command::Reply<v1::PlanReply>>();
  ASSERT_NE(reply, nullptr);
  ASSERT_TRUE(reply->reply.ok()) << reply->reply.status();
  const v1::Plan& plan = reply->reply->plan();
  EXPECT_EQ(plan.prediction().assumed_line_bits_per_second(), 1'000'000u);
  EXPECT_NEAR(plan.cells(1).egress_bits_per_second(), 956'000, 1'000);
  EXPECT_EQ(plan.assignment().edges(0).backward().latency_seconds(), 0.25);
  EXPECT_GE(plan.prediction().codecs_size(), 5);
}

TEST(PlanRequest, IsRefusedWithoutEnoughWorkers) {
  Coordinator c;
  c.Join("a");
  c.Tick(PlanOf(SmallSpec("tiny", 2), "plan-1"));
  const auto* reply = c.LastReply<command::Reply<v1::PlanReply>>();
  ASSERT_NE(reply, nullptr);
  EXPECT_EQ(Message(reply->reply.status()), "cannot plan: the run needs 2 workers, 1 connected: a");
}

TEST(PlanRequest, HoldsItsWorkersWhileItMeasures) {
  Coordinator c;
  c.Join("a");
  c.Tick(PlanOf(SmallSpec("tiny", 1), "plan-1"));
  c.Tick(SubmitOf(SmallSpec("tiny", 1), "tiny-1"));
  EXPECT_EQ(c.StateOf("tiny-1"), "queued");
  c.Data("plan-1");
  c.Times("a", "plan-1", 1);
  EXPECT_EQ(c.StateOf("tiny-1"), "planning");
}

TEST(PlanRequest, FailsWithItsWorker) {
  Coordinator c;
  c.Join("a");
  c.Join("b");
  c.Tick(PlanOf(SmallSpec("tiny", 2), "plan-1"));
  c.Tick(event::WorkerLeft{c.sessions["b"], "closed"});
  const auto* reply = c.LastReply<command::Reply<v1::PlanReply>>();
  ASSERT_NE(reply, nullptr);
  EXPECT_THAT(std::string(Message(reply->reply.status())), HasSubstr("worker b was lost"));
  EXPECT_EQ(c.Count("a", v1::WorkerCommand::kAbort), 1);
}

}  // namespace
}  // namespace longhaul::coordinator
