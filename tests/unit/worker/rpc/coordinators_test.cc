// A worker's session with several coordinators: which one it goes to, and whom it obeys.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <memory>
#include <string>

#include "base/unique_fd.h"
#include "tests/support/mailbox.h"
#include "tests/unit/worker/rpc/fake_coordinator.h"
#include "worker/rpc/session.h"

namespace longhaul::worker {
namespace {

using Connection = std::shared_ptr<FakeCoordinator::Connection>;

// A port at which connections are made and nothing is ever said.
class SilentPort {
 public:
  SilentPort() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof(address);
    EXPECT_EQ(::bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), bytes), 0);
    EXPECT_EQ(::listen(fd_.get(), 16), 0);
    ::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address), &bytes);
    port_ = ntohs(address.sin_port);
  }
  std::string address() const { return fmt::format("127.0.0.1:{}", port_); }

 private:
  UniqueFd fd_;
  int port_ = 0;
};

class CoordinatorsTest : public ::testing::Test {
 protected:
  CoordinatorsTest() {
    first_.Start();
    second_.Start();
  }
  void Dial(const std::string& addresses) {
    auto access =
        Access::Open({.address = addresses, .insecure = true}, Deadline::After(absl::Seconds(1)));
    ASSERT_TRUE(access.ok()) << access.status();
    session_ = std::make_unique<Session>(SessionOptions{
        .access = *access,
        .hello = [] { return v1::Hello(); },
        .moved = nullptr,
        .on_command = [this](v1::WorkerCommand command) { commands_.Push(std::move(command)); }});
  }
  void DialBoth() { Dial(first_.address() + "," + second_.address()); }

  // Hears the greeting, and welcomes with a term. The term that the greeting had.
  static uint64_t Welcome(const Connection& connection, uint64_t term) {
    const v1::WorkerMessage hello = connection->HearReport();
    EXPECT_TRUE(hello.has_hello());
    v1::WorkerCommand command;
    command.mutable_welcome()->set_heartbeat_seconds(0.05);
    command.set_term(term);
    EXPECT_TRUE(connection->Say(command));
    return hello.hello().term();
  }
  static bool Command(const Connection& connection, uint64_t term, uint64_t epoch) {
    v1::WorkerCommand command;
    command.mutable_start();
    command.set_term(term);
    command.set_epoch(epoch);
    return connection->Say(command);
  }
  // Until the worker has ended the stream.
  static void AwaitEnd(const Connection& connection) {
    v1::WorkerMessage message;
    while (connection->Hear(&message)) {
    }
    connection->End();
  }
  uint64_t NextEpoch() { return commands_.Take()->epoch(); }

  FakeCoordinator first_, second_;
  ::longhaul::testing::Mailbox<v1::WorkerCommand> commands_;
  std::unique_ptr<Session> session_;
};

TEST_F(CoordinatorsTest, TheFirstIsDialledFirst) {
  DialBoth();
  Welcome(first_.Accept(), 1);
  EXPECT_TRUE(second_.nobody_dialled());
}

TEST_F(CoordinatorsTest, OneThatIsDownIsPassedBy) {
  first_.Stop();
  DialBoth();
  Welcome(second_.Accept(), 1);
}

TEST_F(CoordinatorsTest, OneThatAnswersNothingIsPassedBy) {
  const SilentPort silent;
  Dial(silent.address() + "," + second_.address());
  Welcome(second_.Accept(), 1);
}

TEST_F(CoordinatorsTest, AStandbyIsAskedAgainUntilItServes) {
  first_.Stop();
  DialBoth();
  for (int i = 0; i < 3; ++i) {
    second_.Accept()->End({grpc::StatusCode::UNAVAILABLE, "this is the standby of h:1"});
  }
  Welcome(second_.Accept(), 2);
}

TEST_F(CoordinatorsTest, AWorkerComesBackToACoordinatorThatBeginsAnew) {
  DialBoth();
  Welcome(first_.Accept(), 1);
  first_.Stop();
  second_.Accept()->End({grpc::StatusCode::UNAVAILABLE, "this is the standby of h:1"});
  second_.Stop();
  first_.Start();
  EXPECT_EQ(Welcome(first_.Accept(), 1), 1u);
}

TEST_F(CoordinatorsTest, TheNewestTermIsSaidAndObeyed) {
  DialBoth();
  const Connection old = first_.Accept();
  EXPECT_EQ(Welcome(old, 1), 0u);
  EXPECT_TRUE(Command(old, 1, 10));
  EXPECT_EQ(NextEpoch(), 10u);
  old->End({grpc::StatusCode::UNAVAILABLE, ""});
  const Connection taken_over = second_.Accept();
  EXPECT_EQ(Welcome(taken_over, 2), 1u);
  EXPECT_TRUE(Command(taken_over, 2, 20));
  EXPECT_EQ(NextEpoch(), 20u);
  taken_over->End({grpc::StatusCode::UNAVAILABLE, ""});
  // The old one welcomes it, which is worth nothing.
  const Connection outdated = first_.Accept();
  EXPECT_EQ(Welcome(outdated, 1), 2u);
  Command(outdated, 1, 30);
  AwaitEnd(outdated);
  const Connection again = second_.Accept();
  EXPECT_EQ(Welcome(again, 2), 2u);
  EXPECT_TRUE(Command(again, 2, 40));
  EXPECT_EQ(NextEpoch(), 40u);
}

TEST_F(CoordinatorsTest, AnOlderCommandEndsTheStream) {
  DialBoth();
  const Connection connection = first_.Accept();
  Welcome(connection, 5);
  EXPECT_TRUE(Command(connection, 5, 1));
  EXPECT_TRUE(Command(connection, 4, 2));
  Command(connection, 5, 3);
  AwaitEnd(connection);
  EXPECT_EQ(NextEpoch(), 1u);
  EXPECT_TRUE(commands_.empty());
}

TEST_F(CoordinatorsTest, OneWithoutTermsIsOlderThanAnyTerm) {
  DialBoth();
  const Connection connection = first_.Accept();
  Welcome(connection, 1);
  connection->End({grpc::StatusCode::UNAVAILABLE, ""});
  const Connection other = second_.Accept();
  Welcome(other, 0);
  AwaitEnd(other);
}

TEST_F(CoordinatorsTest, OneThatRefusesIsNotTheLastWord) {
  DialBoth();
  first_.Accept()->End({grpc::StatusCode::UNAUTHENTICATED, "no member"});
  const Connection connection = second_.Accept();
  Welcome(connection, 1);
  EXPECT_TRUE(session_->fatal().ok());
  connection->End({grpc::StatusCode::UNAVAILABLE, ""});
  // Once all of them refuse in a row there is nobody to ask.
  first_.Accept()->End({grpc::StatusCode::UNAUTHENTICATED, "no member"});
  second_.Accept()->End({grpc::StatusCode::UNAUTHENTICATED, "no member"});
  const Deadline deadline = Deadline::After(absl::Seconds(30));
  while (session_->fatal().ok() && !deadline.Expired()) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_FALSE(session_->fatal().ok());
}

TEST(CoordinatorListTest, AnAddressThatIsNoneIsNamed) {
  const Status status =
      Access::Open({.address = "a:1,b,c:2", .insecure = true}, Deadline::After(absl::Seconds(1)))
          .status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(status.ToString(), ::testing::HasSubstr("address 'b': expected host:port"));
}

}  // namespace
}  // namespace longhaul::worker
