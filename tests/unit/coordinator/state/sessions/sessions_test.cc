// Workers come, go, come back, and are never trusted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/state_harness.h"

namespace longhaul::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Says to the coordinator what `name` is doing.
v1::Hello Busy(const std::string& name, const std::string& run, uint64_t epoch, uint32_t stage) {
  return HelloAt(name, run, stage, epoch);
}

bool Closed(const Coordinator& c, SessionId session) {
  for (const Command& command : c.commands) {
    const auto* close = std::get_if<command::CloseSession>(&command);
    if (close != nullptr && close->session == session) return true;
  }
  return false;
}

class Sessions : public ::testing::Test {
 protected:
  void SetUp() override {
    c.Join("a");
    c.Join("b");
    c.Tick(SubmitOf(SmallSpec("tiny", 2), "tiny-1"));
  }
  Coordinator c;
};

TEST_F(Sessions, WelcomeNamesVersionAndHeartbeat) {
  const v1::WorkerCommand* command = c.Last("a", v1::WorkerCommand::kWelcome);
  ASSERT_NE(command, nullptr);
  EXPECT_EQ(command->welcome().protocol(), 9u);
  EXPECT_EQ(command->welcome().coordinator_version(), "1.2.3");
  EXPECT_EQ(command->welcome().heartbeat_seconds(), 1.0);
}

TEST_F(Sessions, NoCommonProtocolIsRefusedWithBothRanges) {
  for (const auto& [min, max] : {std::pair{2u, 8u}, {10u, 11u}}) {
    v1::Hello hello = HelloOf("z");
    hello.set_protocol_min(min);
    hello.set_protocol_max(max);
    hello.set_version("0.9");
    const SessionId session = c.Join(hello);
    const v1::WorkerCommand* reject = c.Last("z", v1::WorkerCommand::kReject);
    ASSERT_NE(reject, nullptr);
    EXPECT_TRUE(reject->reject().fatal());
    EXPECT_THAT(reject->reject().reason(),
                AllOf(HasSubstr("(version 1.2.3) speaks protocol versions 9 to 9"),
                      HasSubstr(fmt::format("(version 0.9) speaks {} to {}", min, max)),
                      HasSubstr("install the same version on both")));
    EXPECT_TRUE(Closed(c, session));
    EXPECT_EQ(c.views().Workers(c.now).size(), 2u);
  }
}

TEST_F(Sessions, WhoSpeaksMoreProtocolsSpeaksThisOne) {
  v1::Hello hello = HelloOf("newer");
  hello.set_protocol_max(10);
  c.Join(hello);
  const v1::WorkerCommand* welcome = c.Last("newer", v1::WorkerCommand::kWelcome);
  ASSERT_NE(welcome, nullptr);
  EXPECT_EQ(welcome->welcome().protocol(), 9u);
}

TEST_F(Sessions, AStageThatAWorkerKeepsIsShownAsLongAsItSaysSo) {
  v1::Hello hello = HelloOf("z");
  hello.mutable_resident()->set_run_id("older-1");
  hello.mutable_resident()->set_memory_bytes(300);
  c.Join(hello);
  const auto resident = [&]() -> std::string {
    for (const v1::WorkerStatus& worker : c.views().Workers(c.now)) {
      if (worker.name() != "z" || !worker.has_resident()) continue;
      return fmt::format("{} {}", worker.resident().run_id(), worker.resident().memory_bytes());
    }
    return "none";
  };
  EXPECT_EQ(resident(), "older-1 300");
  v1::WorkerMessage message;
  message.mutable_heartbeat()->mutable_resident()->set_run_id("newer-1");
  message.mutable_heartbeat()->mutable_resident()->set_memory_bytes(500);
  c.Tick(c.Said("z", message));
  EXPECT_EQ(resident(), "newer-1 500");
  message.mutable_heartbeat()->clear_resident();
  c.Tick(c.Said("z", message));
  EXPECT_EQ(resident(), "none");
}

// Each of them would throw the other out for ever.
TEST_F(Sessions, OneIdentityIsOneWorker) {
  v1::Hello here = HelloOf("z", "1"), there = HelloOf("z", "2");
  here.set_host("here");
  there.set_host("there");
  c.Join(here);
  const SessionId second = c.Join(there);
  const SessionId third = c.Join(here);
  const v1::WorkerCommand* reject = c.Last("z", v1::WorkerCommand::kReject);
  ASSERT_NE(reject, nullptr);
  EXPECT_TRUE(reject->reject().fatal());
  EXPECT_THAT(reject->reject().reason(),
              AllOf(HasSubstr("two workers have the identity id-z: this one on here and worker z "
                              "on there"),
                    HasSubstr("--state-dir of its own")));
  EXPECT_TRUE(Closed(c, third));
  EXPECT_FALSE(Closed(c, second));
  // Also one that was away when the other came.
  const SessionId fourth = c.Join(HelloOf("y", "1"));
  c.Tick(event::WorkerLeft{fourth, "its connection broke"});
  c.Join(HelloOf("y", "2"));
  c.Forget();
  EXPECT_TRUE(Closed(c, c.Join(HelloOf("y", "1"))));
  EXPECT_NE(c.Last("y", v1::WorkerCommand::kReject), nullptr);
  // One that is only started again and again is none too many.
  for (const char* incarnation : {"3", "4", "5"}) {
    c.Forget();
    c.Join(HelloOf("z", incarnation));
    EXPECT_NE(c.Last("z", v1::WorkerCommand::kWelcome), nullptr);
  }
}

TEST_F(Sessions, AClockThatIsAnHourOffIsSaid) {
  const auto join = [&](const std::string& name, int64_t ahead_ms) {
    v1::Hello hello = HelloOf(name);
    hello.set_unix_ms(1'000'000'000'000 + ahead_ms);
    const SessionId session(900 + c.sessions.size());
    c.sessions[name] = session;
    c.events.clear();
    const TickResult result =
        c.state->Tick({event::WorkerJoined{session, hello}}, c.now, 1'000'000'000'000);
    std::string said;
    for (const Write& write : result.writes) {
      const auto* event = std::get_if<write::LogEvent>(&write);
      if (event != nullptr) said += event->event.text() + "\n";
    }
    return said;
  };
  EXPECT_THAT(join("x", 3'600'000),
              HasSubstr("the clock of worker x is 1h00m ahead of the coordinator's; training does "
                        "not depend on it"));
  EXPECT_THAT(join("y", -3'600'000), HasSubstr("the clock of worker y is 1h00m behind"));
  EXPECT_THAT(join("z", 2'000), Not(HasSubstr("clock")));
  for (const v1::WorkerStatus& worker : c.views().Workers(c.now)) {
    const double ahead = worker.name() == "x"   ? 3600
                         : worker.name() == "y" ? -3600
                         : worker.name() == "z" ? 2
                                                : 0;
    EXPECT_EQ(worker.clock_ahead_seconds(), ahead) << worker.name();
  }
}

TEST_F(Sessions, AnUnusableHelloIsRefused) {
  for (v1::Hello hello : {HelloOf("z"), HelloOf("z"), HelloOf("z"), HelloOf("z")}) {
    static int which = 0;
    switch (which++) {
      case 0:
        hello.clear_worker_id();
        break;
      case 1:
        hello.clear_incarnation();
        break;
      case 2:
        hello.set_name("two words");
        break;
      default:
        hello.set_name(std::string(10'000, 'x'));
    }
    const SessionId session = c.Join(hello);
    EXPECT_TRUE(Closed(c, session));
  }
  EXPECT_EQ(c.views().Workers(c.now).size(), 2u);
}

TEST_F(Sessions, SilenceEndsASession) {
  c.ToRunning(kAb, "tiny-1");
  const SessionId lost = c.sessions["b"];
  for (int i = 0; i < 9; ++i) {
    c.Advance(absl::Seconds(1));
    v1::WorkerMessage alive;
    alive.mutable_heartbeat()->set_memory_used_bytes(77);
    c.Tick(c.Said("a", alive));
  }
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
  ASSERT_TRUE(c.last.wake_at.has_value());
  c.now = *c.last.wake_at;
  c.Tick();
  EXPECT_THAT(c.LastEvent("worker"),
              HasSubstr("worker b (stage 1) has no connection to the coordinator (no sign of life "
                        "for 10 s)"));
  EXPECT_TRUE(Closed(c, lost));
  EXPECT_FALSE(c.views().Workers(c.now)[1].connected());
  EXPECT_EQ(c.views().Workers(c.now)[0].memory_used_bytes(), 77u);
}

TEST_F(Sessions, ANewIncarnationLosesTheRun) {
  c.ToRunning(kAb, "tiny-1");
  const SessionId old = c.sessions["b"];
  c.Join(HelloOf("b", "2"));
  EXPECT_EQ(c.StateOf("tiny-1"), "failed");
  EXPECT_THAT(c.ReasonOf("tiny-1"), HasSubstr("worker b (stage 1) was lost: it was started anew"));
  EXPECT_TRUE(Closed(c, old));
  c.Tick(event::WorkerLeft{old, "closed"});  // the shell tells of the old stream's end
  EXPECT_TRUE(c.views().Workers(c.now)[1].connected());
}

TEST_F(Sessions, ANewSessionOfTheSameIncarnationGoesOnRunning) {
  c.ToRunning(kAb, "tiny-1");
  const SessionId old = c.sessions["b"];
  c.Forget();
  c.Join(Busy("b", "tiny-1", 1, 1));
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
  EXPECT_TRUE(Closed(c, old));
  EXPECT_EQ(c.Count("b", v1::WorkerCommand::kAssign), 0);
  EXPECT_EQ(c.Count("b", v1::WorkerCommand::kStart), 1);  // it may not have had it
  EXPECT_EQ(c.Count("b", v1::WorkerCommand::kAbort), 0);
  c.Steps(kAb, "tiny-1", 1);
  c.Forget();
  c.Join(Busy("b", "tiny-1", 1, 1));
  EXPECT_EQ(c.Count("b", v1::WorkerCommand::kStart), 0);  // it has been running
  // What the replaced session still says does not count.
  v1::WorkerMessage message = c.About("tiny-1");
  message.mutable_error()->set_message("late");
  c.Tick(event::WorkerSaid{old, message});
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
}

// The upstream stage is dialled.
TEST_F(Sessions, WhoDialsAWorkerHearsThatItHasMoved) {
  c.ToRunning(kAb, "tiny-1");
  ASSERT_TRUE(c.records.at("tiny-1").plan->assignment.edges[0].to_dials);
  c.Forget();
  v1::Hello moved = Busy("a", "tiny-1", 1, 0);
  for (v1::DataEndpoint& endpoint : *moved.mutable_endpoints()) {
    endpoint.set_addresses(0, endpoint.transport() + "-elsewhere:7");
  }
  c.Join(moved);
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
  EXPECT_THAT(c.events.back().text(),
              HasSubstr("worker a (stage 0) has moved: ucx ucx-elsewhere:7"));
  ASSERT_EQ(c.Count("b", v1::WorkerCommand::kReaddress), 1);
  const v1::Readdress told = c.Last("b", v1::WorkerCommand::kReaddress)->readdress();
  EXPECT_EQ(told.edge(), 0u);
  EXPECT_THAT(told.addresses(), ::testing::ElementsAre("ucx-elsewhere:7"));
  EXPECT_EQ(c.Count("a", v1::WorkerCommand::kReaddress), 0);  // it dials nobody
  // The next process of the coordinator knows, and so does a worker that was away meanwhile.
  EXPECT_THAT(c.records.at("tiny-1").plan->assignment.cells[0].endpoints[0].addresses,
              ::testing::ElementsAre("ucx-elsewhere:7"));
  c.Forget();
  c.Join(Busy("b", "tiny-1", 1, 1));
  EXPECT_THAT(c.Last("b", v1::WorkerCommand::kReaddress)->readdress().addresses(),
              ::testing::ElementsAre("ucx-elsewhere:7"));
  // Who comes back to the same place has not moved.
  const size_t events = c.events.size();
  c.Forget();
  c.Join(moved);
  EXPECT_EQ(c.Count("b", v1::WorkerCommand::kReaddress), 0);
  EXPECT_THAT(c.events.back().text(), ::testing::Not(HasSubstr("has moved")));
  EXPECT_EQ(c.events.size(), events + 1);  // of the session
}

// The measurement may be asked for twice, and the second answer come when the plan is made.
TEST_F(Sessions, ALateErrorOfAMeasurementIsNotTheStages) {
  c.ToPreparing(kAb, "tiny-1");
  v1::WorkerMessage message = c.About("tiny-1");
  message.mutable_error()->set_message("no memory left to measure in");
  message.mutable_error()->set_measuring(true);
  c.Tick(c.Said("a", message));
  EXPECT_EQ(c.StateOf("tiny-1"), "preparing");
}

TEST_F(Sessions, CommandsThatMayBeLostAreRepeated) {
  c.Forget();
  c.Join("a");  // while it should be measuring
  EXPECT_EQ(c.Count("a", v1::WorkerCommand::kMeasure), 1);
  c.ToPreparing(kAb, "tiny-1");
  c.Forget();
  c.Join("a");
  EXPECT_EQ(c.Count("a", v1::WorkerCommand::kAssign), 1);
  c.Ready("a", "tiny-1");
  c.Forget();
  c.Join(Busy("a", "tiny-1", 1, 0));
  EXPECT_EQ(c.Count("a", v1::WorkerCommand::kAssign), 0);
  c.Ready("b", "tiny-1");
  c.Tick(event::StopAsked{RequestId(9), "tiny-1", false});
  c.Forget();
  c.Join(Busy("a", "tiny-1", 1, 0));
  EXPECT_EQ(c.Count("a", v1::WorkerCommand::kStop), 1);
}

TEST_F(Sessions, AWorkerWithoutItsStageFailsTheRun) {
  c.ToRunning(kAb, "tiny-1");
  c.Steps(kAb, "tiny-1", 1);
  c.Join("b");                                // same incarnation, but free
  EXPECT_EQ(c.StateOf("tiny-1"), "running");  // its error may be right behind
  c.Advance(absl::Seconds(1));
  c.Tick();
  EXPECT_EQ(c.StateOf("tiny-1"), "failed");
  EXPECT_THAT(c.ReasonOf("tiny-1"), HasSubstr("worker b (stage 1) came back without its stage"));
}

TEST_F(Sessions, AWorkerThatIsFreeAfterTheLastStepHasNotFinished) {
  c.ToRunning(kAb, "tiny-1");
  for (uint64_t step = 1; step <= 4; ++step) c.Steps(kAb, "tiny-1", step);
  c.Join("b");  // a finished stage is kept until the run has ended
  c.Error("b", "tiny-1", "checkpoint of step 4: no space left");
  EXPECT_EQ(c.StateOf("tiny-1"), "failed");
  EXPECT_THAT(c.ReasonOf("tiny-1"), HasSubstr("no space left"));
}

TEST_F(Sessions, ASleepOfTheCoordinatorIsNobodysSilence) {
  c.ToRunning(kAb, "tiny-1");
  c.Advance(absl::Seconds(30));
  c.Tick();  // before what waits in its sockets
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
  EXPECT_THAT(c.LastEvent("note"), HasSubstr("was asleep for 30.0 s"));
  c.Steps(kAb, "tiny-1", 1);
  // From now on everybody is silent, and it is awake.
  for (int i = 0; i < 80 && c.StateOf("tiny-1") == "running"; ++i) {
    c.now = *c.last.wake_at;
    c.Tick();
  }
  EXPECT_THAT(c.ReasonOf("tiny-1"), HasSubstr("no sign of life for 10 s"));
}

TEST_F(Sessions, ASlowCoordinatorStillNoticesSilence) {
  c.ToRunning(kAb, "tiny-1");
  for (int i = 0; i < 80 && c.StateOf("tiny-1") == "running"; ++i) {
    c.Advance(absl::Seconds(3));  // every tick is late
    c.Tick();
  }
  EXPECT_THAT(c.ReasonOf("tiny-1"), HasSubstr("no sign of life for 10 s"));
}

TEST_F(Sessions, AWorkerOnAForgottenRunIsFreed) {
  c.Join(Busy("z", "gone-1", 3, 0));
  const v1::WorkerCommand* abort = c.Last("z", v1::WorkerCommand::kAbort);
  ASSERT_NE(abort, nullptr);
  EXPECT_EQ(abort->run_id(), "gone-1");
  EXPECT_EQ(abort->epoch(), 3u);
}

TEST_F(Sessions, OlderEpochsAreDroppedAndCountedOnce) {
  c.ToRunning(kAb, "tiny-1");
  for (int i = 0; i < 3; ++i) {
    v1::WorkerMessage message = c.About("tiny-1", 0);
    message.mutable_error()->set_message("late");
    c.Tick(c.Said("a", message));
  }
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
  int notes = 0;
  for (const v1::Event& event : c.events) {
    notes += event.text().find("dropped a message of epoch 0 from worker a") == 0;
  }
  EXPECT_EQ(notes, 1);
  c.Tick(event::StopAsked{RequestId(9), "tiny-1", true});
  EXPECT_EQ(c.LastEvent("note"), "3 messages that did not belong to its epoch were dropped");
}

TEST_F(Sessions, AWorkerSpeaksForItsOwnStageOnly) {
  c.ToRunning(kAb, "tiny-1");
  c.Join("z");
  for (const char* liar : {"z", "a"}) {
    v1::WorkerMessage message = c.About("tiny-1");
    *message.mutable_step() = c.Report(1, 1, 2);
    c.Tick(c.Said(liar, message));
  }
  c.Step("a", "tiny-1", c.Report(1, 0, 2));
  EXPECT_EQ(c.views().RunOf("tiny-1")->step(), 0u);
  c.Step("b", "tiny-1", c.Report(1, 1, 2));
  EXPECT_EQ(c.views().RunOf("tiny-1")->step(), 1u);
}

TEST_F(Sessions, SameNamesAreToldApart) {
  v1::Hello twin = HelloOf("a");
  twin.set_worker_id("0123456789");
  c.Join(twin);
  c.Tick(event::WorkerLeft{c.sessions["a"], "closed"});
  EXPECT_EQ(c.LastEvent("worker"), "worker a (01234567) left: closed");
  EXPECT_EQ(c.views().Workers(c.now).size(), 3u);
}

TEST_F(Sessions, GoneWorkersAreForgottenAtSomePoint) {
  for (int i = 0; i < 400; ++i) {
    c.Join(fmt::format("guest{}", i));
    c.Tick(event::WorkerLeft{c.sessions[fmt::format("guest{}", i)], "closed"});
  }
  EXPECT_LE(c.views().Workers(c.now).size(), 260u);
}

}  // namespace
}  // namespace longhaul::coordinator
