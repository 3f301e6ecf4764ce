// A worker's session with a coordinator that has a standby: which of the two it dials, and whose
// commands it obeys.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/log.h"
#include "tests/support/mailbox.h"
#include "tests/support/quiet.h"
#include "tests/support/silent_listener.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/worker/agent/fake_coordinator.h"
#include "worker/agent/session.h"

namespace longhaul::worker {
namespace {

using ::longhaul::testing::SilentListener;

const grpc::Status kIsStandby(grpc::StatusCode::UNAVAILABLE,
                              "this is the standby of h:7070, which it has not taken over");

class SessionListTest : public ::testing::Test {
 protected:
  using Connection = std::shared_ptr<FakeCoordinator::Connection>;

  void SetUp() override {
    ASSERT_TRUE(InitLogging("info").ok());
    SetLogTap([this](std::string_view level, std::string_view text) {
      const std::lock_guard lock(mutex_);
      lines_.push_back(fmt::format("{}: {}", level, text));
    });
  }
  void TearDown() override {
    session_.reset();
    SetLogTap({});
  }
  void Dial(std::vector<std::string> addresses) {
    access_ = Access::PlainOfSeveral(std::move(addresses), "");
    session_ = std::make_unique<Session>(SessionOptions{
        .access = access_,
        .hello = [] { return v1::Hello(); },
        .on_command = [this](v1::WorkerCommand command) { commands_.Push(std::move(command)); },
        .terms = terms_,
        .silence = silence_});
  }
  void DialBoth() { Dial({first_.address(), second_.address()}); }
  // Accepts and hears the greeting, whose term it checks.
  static Connection Meet(FakeCoordinator& coordinator, uint64_t term) {
    Connection connection = coordinator.Accept();
    EXPECT_TRUE(connection);
    if (!connection) return connection;
    const v1::WorkerMessage hello = connection->HearReport();
    EXPECT_TRUE(hello.has_hello());
    EXPECT_EQ(hello.hello().term(), term);
    return connection;
  }
  static bool HungUp(const Connection& connection) {
    return connection->HearReport().body_case() == v1::WorkerMessage::BODY_NOT_SET;
  }
  static v1::WorkerCommand StartOf(uint64_t term) {
    v1::WorkerCommand command;
    command.set_term(term);
    command.mutable_start();
    return command;
  }
  int CountLines(const std::string& part) {
    const std::lock_guard lock(mutex_);
    return static_cast<int>(std::ranges::count_if(
        lines_, [&](const std::string& line) { return line.find(part) != std::string::npos; }));
  }

  FakeCoordinator first_, second_;
  TermFile terms_ = TermFile::InMemory();
  absl::Duration silence_ = absl::Minutes(10);
  std::shared_ptr<Access> access_;
  ::longhaul::testing::Mailbox<v1::WorkerCommand> commands_;
  std::mutex mutex_;
  std::vector<std::string> lines_;
  std::unique_ptr<Session> session_;
};

TEST_F(SessionListTest, GoesToTheNextWhereOneIsDown) {
  first_.Start();
  first_.Stop();
  second_.Start();
  DialBoth();
  EXPECT_TRUE(Meet(second_, 0)->Welcome());
  EXPECT_EQ(access_->address(), second_.address());
}

TEST_F(SessionListTest, GoesToTheNextWhereOneNeverAnswers) {
  const SilentListener silent;
  second_.Start();
  const MonoTime begin = Now();
  Dial({silent.address(), second_.address()});
  EXPECT_TRUE(Meet(second_, 0)->Welcome());
  EXPECT_LT(Now() - begin, testing::QuietLimit(absl::Seconds(3), absl::Seconds(10)));
}

TEST_F(SessionListTest, GoesToTheNextWhereOneIsAStandby) {
  first_.Start();
  second_.Start();
  DialBoth();
  Meet(first_, 0)->End(kIsStandby);
  EXPECT_TRUE(Meet(second_, 0)->Welcome());
  EXPECT_EQ(CountLines(fmt::format("warning: coordinator {}: {}; trying {}", first_.address(),
                                   kIsStandby.error_message(), second_.address())),
            1);
}

TEST_F(SessionListTest, GoesRoundUntilOneIsThere) {
  for (FakeCoordinator* coordinator : {&first_, &second_}) {
    coordinator->Start();
    coordinator->Stop();
  }
  DialBoth();
  // The round is over when the first has been found down again.
  while (access_->generation() < 3) absl::SleepFor(absl::Milliseconds(1));
  second_.Start();
  EXPECT_TRUE(Meet(second_, 0)->Welcome());
}

// It keeps coming back to the standby, and a log tells so once.
TEST_F(SessionListTest, WaitsForTheStandbyToTakeOver) {
  first_.Start();
  second_.Start();
  DialBoth();
  EXPECT_TRUE(Meet(first_, 0)->Welcome(1, /*term=*/1));
  first_.Stop();
  const MonoTime killed = Now();
  MonoTime last = killed;
  for (int refusals = 0; refusals < 6; ++refusals) {
    const Connection connection = Meet(second_, 1);
    ASSERT_TRUE(connection);
    // With one address the pauses would be of 5 s by now.
    EXPECT_LT(Now() - last, absl::Milliseconds(4500));
    last = Now();
    connection->End(kIsStandby);
  }
  const Connection taken_over = Meet(second_, 1);
  EXPECT_TRUE(taken_over->Welcome(1, /*term=*/2));
  taken_over->Say(StartOf(2));
  EXPECT_TRUE(commands_.Take().has_value());
  EXPECT_EQ(CountLines(kIsStandby.error_message()), 1);
  // Once when it broke, once that it is down.
  EXPECT_EQ(CountLines("warning: coordinator " + first_.address()), 2);
}

TEST_F(SessionListTest, ARefusalForNowIsTriedAgainThere) {
  first_.Start();
  second_.Start();
  DialBoth();
  const Connection refused = Meet(first_, 0);
  refused->Reject("another worker has this name", /*fatal=*/false);
  EXPECT_TRUE(HungUp(refused));
  refused->End();
  EXPECT_TRUE(Meet(first_, 0)->Welcome());
  EXPECT_TRUE(second_.nobody_dialled());
}

// ---- Terms

TEST_F(SessionListTest, CommandsOfTheSameAndOfANewerTermAreObeyed) {
  first_.Start();
  second_.Start();
  DialBoth();
  const Connection connection = Meet(first_, 0);
  EXPECT_TRUE(connection->Welcome(1, /*term=*/1));
  for (const uint64_t term : {1, 2, 2}) {
    EXPECT_TRUE(connection->Say(StartOf(term)));
    const auto command = commands_.Take();
    ASSERT_TRUE(command.has_value());
    EXPECT_EQ(command->term(), term);
  }
  connection->End(kIsStandby);
  const Connection same = Meet(second_, 2);
  EXPECT_TRUE(same->Welcome(1, /*term=*/2));
  EXPECT_TRUE(same->Say(StartOf(2)));
  EXPECT_TRUE(commands_.Take().has_value());
}

TEST_F(SessionListTest, AnOlderWelcomeIsNotObeyed) {
  first_.Start();
  second_.Start();
  DialBoth();
  const Connection newer = Meet(first_, 0);
  EXPECT_TRUE(newer->Welcome(1, /*term=*/2));
  EXPECT_TRUE(newer->Say(StartOf(2)));
  EXPECT_TRUE(commands_.Take().has_value());
  newer->End(kIsStandby);
  for (const uint64_t term : {1, 0}) {
    const Connection older = Meet(second_, 2);
    older->Welcome(1, term);
    older->Say(StartOf(term));
    EXPECT_TRUE(HungUp(older));
    older->End();
    const Connection next = Meet(first_, 2);
    next->Welcome(1, /*term=*/2);
    next->Say(StartOf(2));
    const auto command = commands_.Take();
    ASSERT_TRUE(command.has_value());
    EXPECT_EQ(command->term(), 2u);
    next->End(kIsStandby);
  }
  EXPECT_TRUE(commands_.empty());
  const std::string head = "warning: coordinator " + second_.address();
  EXPECT_EQ(CountLines(head + " has term 1, but one of term 2 has taken over from it"), 1);
  EXPECT_EQ(CountLines(head + " has no term, but one of term 2 has taken over from it"), 1);
}

TEST_F(SessionListTest, AnOlderCommandInMidStreamIsNotObeyed) {
  first_.Start();
  second_.Start();
  DialBoth();
  const Connection connection = Meet(first_, 0);
  EXPECT_TRUE(connection->Welcome(1, /*term=*/2));
  EXPECT_TRUE(connection->Say(StartOf(1)));
  EXPECT_TRUE(HungUp(connection));
  connection->End();
  const Connection next = Meet(second_, 2);
  EXPECT_TRUE(next->Welcome(1, /*term=*/3));
  EXPECT_TRUE(next->Say(StartOf(3)));
  const auto command = commands_.Take();
  ASSERT_TRUE(command.has_value());
  EXPECT_EQ(command->term(), 3u);
  EXPECT_TRUE(commands_.empty());
}

TEST_F(SessionListTest, AnOldCoordinatorCannotEndTheWorker) {
  first_.Start();
  second_.Start();
  DialBoth();
  Connection newer = Meet(first_, 0);
  EXPECT_TRUE(newer->Welcome(1, /*term=*/2));
  newer->End(kIsStandby);
  const Connection rejects = Meet(second_, 2);
  rejects->Reject("I do not know you", /*fatal=*/true, /*term=*/1);
  EXPECT_TRUE(HungUp(rejects));
  rejects->End();
  newer = Meet(first_, 2);
  EXPECT_TRUE(newer->Welcome(1, /*term=*/2));
  newer->End(kIsStandby);
  // Before it has read the hello, by what it knows of members.
  Meet(second_, 2)->End({grpc::StatusCode::PERMISSION_DENIED, "this worker is no member"});
  newer = Meet(first_, 2);
  EXPECT_TRUE(newer);
  EXPECT_TRUE(session_->fatal().ok()) << session_->fatal();
  // The one that is obeyed can.
  newer->End({grpc::StatusCode::PERMISSION_DENIED, "the member is revoked"});
  const Deadline deadline = Deadline::After(absl::Seconds(30));
  while (session_->fatal().ok() && !deadline.Expired()) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_TRUE(absl::IsPermissionDenied(session_->fatal())) << session_->fatal();
}

// A clone of the coordinator's disk claims the same term.
TEST_F(SessionListTest, AnotherTenureOfTheSameTermIsNotObeyed) {
  first_.Start();
  second_.Start();
  DialBoth();
  const Connection obeyed = Meet(first_, 0);
  v1::WorkerCommand start = StartOf(2);
  start.set_tenure("one");
  start.set_change(17);
  EXPECT_TRUE(obeyed->Say(start));
  EXPECT_TRUE(commands_.Take().has_value());
  obeyed->End(kIsStandby);
  const Connection clone = Meet(second_, 2);
  start.set_tenure("other");
  EXPECT_TRUE(clone->Say(start));
  EXPECT_TRUE(HungUp(clone));
  clone->End();
  const Connection again = first_.Accept();
  ASSERT_TRUE(again);
  const v1::Hello hello = again->HearReport().hello();
  EXPECT_EQ(hello.tenure(), "one");
  EXPECT_EQ(hello.change(), 17u);
  EXPECT_EQ(hello.leader_address(), first_.address());
  EXPECT_TRUE(commands_.empty());
}

TEST_F(SessionListTest, ARestartedWorkerObeysNoOlderTerm) {
  const ::longhaul::testing::TempDir folder;
  first_.Start();
  second_.Start();
  terms_ = *TermFile::Open(folder.path());
  DialBoth();
  const Connection newer = Meet(first_, 0);
  EXPECT_TRUE(newer->Say(StartOf(2)));
  EXPECT_TRUE(commands_.Take().has_value());
  session_.reset();
  newer->End();
  terms_ = *TermFile::Open(folder.path());
  Dial({second_.address(), first_.address()});
  const Connection older = Meet(second_, 2);
  older->Say(StartOf(1));
  EXPECT_TRUE(HungUp(older));
  older->End();
  EXPECT_TRUE(Meet(first_, 2)->Welcome(1, /*term=*/2));
  EXPECT_TRUE(commands_.empty());
}

// Its connection stays open, as that of a process that was stopped.
TEST_F(SessionListTest, LeavesACoordinatorThatIsSilent) {
  silence_ = absl::Seconds(2);
  first_.Start();
  second_.Start();
  DialBoth();
  const Connection silent = Meet(first_, 0);
  EXPECT_TRUE(silent->Welcome(1, /*term=*/1));
  const Connection next = Meet(second_, 1);
  silent->End();
  EXPECT_TRUE(next->Welcome(1, /*term=*/2));
  // A beat is a sign of life, and no command.
  v1::WorkerCommand beat;
  beat.set_term(2);
  beat.mutable_leader_beat();
  EXPECT_TRUE(next->Say(beat));
  EXPECT_TRUE(next->Say(StartOf(2)));
  const auto command = commands_.Take();
  ASSERT_TRUE(command.has_value());
  EXPECT_TRUE(command->has_start());
  EXPECT_EQ(
      CountLines("warning: coordinator " + first_.address() + ": nothing was heard from it for 2"),
      1);
}

TEST_F(SessionListTest, TermsCountWithOneAddressToo) {
  first_.Start();
  Dial({first_.address()});
  const Connection newer = Meet(first_, 0);
  EXPECT_TRUE(newer->Welcome(1, /*term=*/2));
  newer->End();
  for (int i = 0; i < 2; ++i) {
    const Connection older = Meet(first_, 2);
    older->Welcome(1, /*term=*/1);
    EXPECT_TRUE(HungUp(older));
    older->End();
  }
  EXPECT_TRUE(Meet(first_, 2)->Welcome(1, /*term=*/2));
  EXPECT_EQ(CountLines("has term 1, but one of term 2 has taken over from it; dialling again"), 1);
}

}  // namespace
}  // namespace longhaul::worker
