// A worker's session against a coordinator in this process: greeting, refusals, reconnecting, what
// is kept for a coordinator that is away, and the end.
#include "worker/agent/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "base/log.h"
#include "base/watchdog.h"
#include "tests/support/mailbox.h"
#include "tests/unit/worker/agent/fake_coordinator.h"

namespace longhaul::worker {
namespace {

using ::testing::HasSubstr;

v1::WorkerMessage Report(uint64_t step) {
  v1::WorkerMessage message;
  message.set_run_id("run");
  message.mutable_step()->set_step(step);
  return message;
}

class SessionTest : public ::testing::Test {
 protected:
  void Dial(const std::string& token = "") {
    session_ = std::make_unique<Session>(SessionOptions{
        .access = Access::Plain(coordinator_.address(), token),
        .hello =
            [this] {
              v1::Hello hello;
              hello.set_name("worker1");
              hello.set_epoch(++greetings_);
              return hello;
            },
        .moved = [this] { return moved_.exchange(false); },
        .on_command = [this](v1::WorkerCommand command) { commands_.Push(std::move(command)); },
        .heartbeat = [](v1::Heartbeat* beat) { beat->mutable_resident()->set_step(7); }});
  }
  // Accepts, hears the greeting and welcomes.
  std::shared_ptr<FakeCoordinator::Connection> Meet(double heartbeat_seconds = 1) {
    auto connection = coordinator_.Accept();
    EXPECT_TRUE(connection);
    EXPECT_TRUE(connection->HearReport().has_hello());
    EXPECT_TRUE(connection->Welcome(heartbeat_seconds));
    return connection;
  }
  // The session says by no event that it has given up.
  Status WaitForFatal() {
    const Deadline deadline = Deadline::After(absl::Seconds(30));
    while (session_->fatal().ok() && !deadline.Expired()) absl::SleepFor(absl::Milliseconds(1));
    return session_->fatal();
  }

  FakeCoordinator coordinator_;
  std::atomic<uint64_t> greetings_{0};
  std::atomic<bool> moved_{false};
  ::longhaul::testing::Mailbox<v1::WorkerCommand> commands_;
  std::unique_ptr<Session> session_;
};

TEST_F(SessionTest, GreetsFirstAndHandsCommandsOnInOrder) {
  coordinator_.Start();
  Dial("a token of more than 16 characters");
  const auto connection = coordinator_.Accept();
  ASSERT_TRUE(connection);
  EXPECT_EQ(connection->authorization(), "Bearer a token of more than 16 characters");
  EXPECT_EQ(connection->HearReport().hello().name(), "worker1");
  connection->Welcome();
  for (uint64_t epoch = 1; epoch <= 3; ++epoch) {
    v1::WorkerCommand command;
    command.set_epoch(epoch);
    command.mutable_start();
    ASSERT_TRUE(connection->Say(command));
  }
  // Welcome is the session's own business.
  for (uint64_t epoch = 1; epoch <= 3; ++epoch) {
    const auto command = commands_.Take();
    ASSERT_TRUE(command.has_value());
    EXPECT_TRUE(command->has_start());
    EXPECT_EQ(command->epoch(), epoch);
  }
}

TEST_F(SessionTest, NothingIsReportedToACoordinatorThatDidNotWelcome) {
  coordinator_.Start();
  Dial();
  session_->Send(Report(1));
  const auto first = coordinator_.Accept();
  ASSERT_TRUE(first);
  EXPECT_TRUE(first->HearReport().has_hello());
  first->End();
  // Had it been sent before the welcome, it would be lost now.
  const auto second = Meet();
  EXPECT_EQ(second->HearReport().step().step(), 1u);
}

TEST_F(SessionTest, HeartbeatsKeepComing) {
  coordinator_.Start();
  Dial();
  const auto connection = Meet(/*heartbeat_seconds=*/0.05);
  v1::WorkerMessage message;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(connection->Hear(&message));
    ASSERT_TRUE(message.has_heartbeat());
    EXPECT_GT(message.heartbeat().memory_used_bytes(), 0u);
    EXPECT_EQ(message.heartbeat().resident().step(), 7u);
  }
}

// A session that waits for its coordinator does not hang. One whose callbacks do not return does.
TEST_F(SessionTest, TheWatchdogFindsCallbacksThatDoNotReturn) {
  LoopLook look;
  MonoTime now = Now();
  const auto looks = [&](int seconds) {
    std::string hangs;
    for (int i = 0; i < seconds && hangs.empty(); ++i) {
      hangs = look.Look(now += absl::Seconds(1)).value_or("");
    }
    return hangs;
  };
  coordinator_.Start();
  std::latch writes(1), go_on_writing(1), reads(1), go_on_reading(1);
  session_ =
      std::make_unique<Session>(SessionOptions{.access = Access::Plain(coordinator_.address(), ""),
                                               .hello = [] { return v1::Hello(); },
                                               .moved = nullptr,
                                               .on_command =
                                                   [&](const v1::WorkerCommand&) {
                                                     reads.count_down();
                                                     go_on_reading.wait();
                                                   },
                                               .heartbeat =
                                                   [&, is_first = true](v1::Heartbeat*) mutable {
                                                     if (!std::exchange(is_first, false)) return;
                                                     writes.count_down();
                                                     go_on_writing.wait();
                                                   }});
  const auto connection = Meet(/*heartbeat_seconds=*/0.05);
  writes.wait();
  EXPECT_THAT(looks(11), HasSubstr("'session writer' has not turned"));
  go_on_writing.count_down();
  v1::WorkerMessage message;
  ASSERT_TRUE(connection->Hear(&message));
  look = {};
  EXPECT_EQ(looks(30), "");
  v1::WorkerCommand command;
  command.mutable_start();
  ASSERT_TRUE(connection->Say(command));
  reads.wait();
  EXPECT_THAT(looks(11), HasSubstr("'session' has not turned"));
  go_on_reading.count_down();
  session_.reset();
}

TEST_F(SessionTest, DialsAgainWithANewGreetingAndLosesNoReport) {
  coordinator_.Start();
  Dial();
  const auto first = Meet(/*heartbeat_seconds=*/0.05);
  session_->Send(Report(1));
  EXPECT_EQ(first->HearReport().step().step(), 1u);
  // What comes next shows that the session has done with the report.
  v1::WorkerMessage heartbeat;
  EXPECT_TRUE(first->Hear(&heartbeat) && heartbeat.has_heartbeat());
  coordinator_.Stop();
  for (uint64_t step = 2; step <= 4; ++step) session_->Send(Report(step));
  coordinator_.Start();
  const auto second = coordinator_.Accept();
  ASSERT_TRUE(second);
  EXPECT_GE(second->HearReport().hello().epoch(), 2u);
  second->Welcome();
  // The first was written, but who knows whether it was stored: it is said again.
  for (uint64_t step = 1; step <= 4; ++step) EXPECT_EQ(second->HearReport().step().step(), step);
}

// Its connection would hear nothing any more, and nobody would say so.
TEST_F(SessionTest, DialsAgainWhereThisMachineHasMoved) {
  coordinator_.Start();
  Dial();
  const auto first = Meet(/*heartbeat_seconds=*/0.05);
  session_->Send(Report(1));
  EXPECT_EQ(first->HearReport().step().step(), 1u);
  moved_ = true;
  const auto second = coordinator_.Accept();
  ASSERT_TRUE(second);
  EXPECT_EQ(second->HearReport().hello().epoch(), 2u);
  second->Welcome(0.05);
  EXPECT_EQ(second->HearReport().step().step(), 1u);
  EXPECT_FALSE(moved_);
}

// As the daemon's logs of a run do.
TEST_F(SessionTest, ItsOwnLogLinesMayComeBackAsReports) {
  ASSERT_TRUE(InitLogging("info").ok());
  coordinator_.Start();
  Dial();
  ASSERT_TRUE(Meet());
  SetLogTap([this](std::string_view, std::string_view) { session_->Send(Report(7)); });
  coordinator_.Stop();
  coordinator_.Start();
  EXPECT_TRUE(Meet());
  SetLogTap({});
}

TEST_F(SessionTest, WaitsForACoordinatorThatIsNotThereYet) {
  coordinator_.Start();
  coordinator_.Stop();
  Dial();
  coordinator_.Start();
  EXPECT_TRUE(Meet());
}

TEST_F(SessionTest, LogLinesAreTheFirstToBeDropped) {
  coordinator_.Start();
  Dial();
  constexpr int kLines = 1500, kKept = 1000;
  v1::WorkerMessage log;
  log.mutable_log()->set_text("a line");
  const auto connection = coordinator_.Accept();
  ASSERT_TRUE(connection);
  EXPECT_TRUE(connection->HearReport().has_hello());
  for (int i = 0; i < kLines; ++i) session_->Send(log);
  session_->Send(Report(1));
  connection->Welcome();
  for (int i = 0; i < kKept; ++i) ASSERT_TRUE(connection->HearReport().has_log()) << i;
  EXPECT_EQ(connection->HearReport().step().step(), 1u);
}

TEST_F(SessionTest, ARefusalThatIsNotFatalIsTriedAgain) {
  coordinator_.Start();
  Dial();
  const auto first = coordinator_.Accept();
  ASSERT_TRUE(first);
  EXPECT_TRUE(first->HearReport().has_hello());
  first->Reject("another worker has this name", /*fatal=*/false);
  // The worker leaves; it hangs up, not the coordinator.
  EXPECT_EQ(first->HearReport().body_case(), v1::WorkerMessage::BODY_NOT_SET);
  first->End();
  EXPECT_TRUE(Meet());
  EXPECT_TRUE(session_->fatal().ok());
}

TEST_F(SessionTest, AFatalRefusalIsTheEnd) {
  coordinator_.Start();
  Dial();
  const auto connection = coordinator_.Accept();
  ASSERT_TRUE(connection);
  EXPECT_TRUE(connection->HearReport().has_hello());
  connection->Reject("this version is too old", /*fatal=*/true);
  EXPECT_EQ(connection->HearReport().body_case(), v1::WorkerMessage::BODY_NOT_SET);
  connection->End();
  EXPECT_EQ(WaitForFatal(), absl::FailedPreconditionError("this version is too old"));
  session_.reset();
  EXPECT_TRUE(coordinator_.nobody_dialled());
}

TEST_F(SessionTest, AWrongTokenIsTheEndAndNamesTheCoordinator) {
  coordinator_.Start();
  Dial("not the right one");
  const auto connection = coordinator_.Accept();
  ASSERT_TRUE(connection);
  connection->End({grpc::StatusCode::UNAUTHENTICATED, "wrong token"});
  const Status fatal = WaitForFatal();
  EXPECT_EQ(fatal.code(), absl::StatusCode::kUnauthenticated);
  EXPECT_THAT(std::string(Message(fatal)), HasSubstr("coordinator " + coordinator_.address()));
  EXPECT_THAT(std::string(Message(fatal)), HasSubstr("wrong token"));
}

TEST_F(SessionTest, EndsWhileTheCoordinatorSaysNothing) {
  coordinator_.Start();
  Dial();
  const auto connection = coordinator_.Accept();
  ASSERT_TRUE(connection);
  EXPECT_TRUE(connection->HearReport().has_hello());
  session_->Send(Report(1));
  session_.reset();
  EXPECT_EQ(connection->HearReport().body_case(), v1::WorkerMessage::BODY_NOT_SET);
}

TEST_F(SessionTest, EndsWhileItDialsAndWhileItWaitsToDialAgain) {
  coordinator_.Start();
  coordinator_.Stop();
  Dial();
  session_.reset();
  coordinator_.Start();
  Dial();
  coordinator_.Accept()->End();
  session_.reset();
}

TEST_F(SessionTest, NoCommandComesAfterItsEnd) {
  coordinator_.Start();
  Dial();
  const auto connection = Meet();
  v1::WorkerCommand command;
  command.mutable_start();
  // Until the worker has hung up, whatever is under way then.
  std::thread coordinator([&] {
    while (connection->Say(command)) {
    }
  });
  EXPECT_TRUE(commands_.Take().has_value());
  session_.reset();
  while (!commands_.empty()) (void)commands_.Take();
  coordinator.join();
  EXPECT_TRUE(commands_.empty());
}

}  // namespace
}  // namespace longhaul::worker
