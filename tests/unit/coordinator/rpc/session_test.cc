// Workers' sessions: who gets one, and how it ends.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <sys/resource.h>

#include "tests/unit/coordinator/rpc/fake_worker.h"

namespace longhaul::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

grpc::Status EndOf(Session& session) {
  v1::WorkerCommand command;
  while (session.Hear(&command)) {
  }
  return session.Finish();
}

size_t Connected(v1::ControlService::Stub& control) {
  CallContext context;
  v1::InfoReply reply;
  EXPECT_TRUE(control.Info(&context.grpc, {}, &reply).ok());
  return reply.workers();
}

// The end of a stream is seen by its worker a little before it is by the coordinator's loop.
bool WaitUntil(const std::function<bool()>& condition) {
  const Deadline deadline = Deadline::After(absl::FromChrono(kPatience));
  while (!deadline.Expired()) {
    if (condition()) return true;
  }
  return false;
}

size_t ThreadsOfThisProcess() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    ++count;
  }
  return count;
}

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

class SessionTest : public RpcTest {};

TEST_F(SessionTest, HelloIsAnsweredByWelcome) {
  Start();
  Session session(server_->address());
  session.SayHello(HelloOf("worker1"));
  v1::WorkerCommand command;
  ASSERT_TRUE(session.Hear(&command));
  ASSERT_TRUE(command.has_welcome());
  EXPECT_EQ(command.welcome().protocol(), 9u);
  EXPECT_EQ(command.welcome().coordinator_version(), "1.2.3");
  EXPECT_EQ(Connected(*control_), 1u);

  CallContext context;
  v1::ListWorkersReply workers;
  ASSERT_TRUE(control_->ListWorkers(&context.grpc, {}, &workers).ok());
  ASSERT_EQ(workers.workers_size(), 1);
  EXPECT_EQ(workers.workers(0).name(), "worker1");

  session.CloseMySide();
  EXPECT_TRUE(EndOf(session).ok());
}

TEST_F(SessionTest, WithoutTheTokenThereIsNoSession) {
  Start();
  for (const std::string token : {"", "another token of thirty-two char"}) {
    Session session(server_->address(), token);
    session.SayHello(HelloOf("worker1"));
    const grpc::Status status = EndOf(session);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
    EXPECT_THAT(status.error_message(), HasSubstr("--token-file"));
  }
  EXPECT_EQ(Connected(*control_), 0u);
}

TEST_F(SessionTest, AnotherProtocolIsRefusedWithBothRanges) {
  Start();
  Session session(server_->address());
  v1::Hello hello = HelloOf("worker1");
  hello.set_protocol_min(10);
  hello.set_protocol_max(11);
  session.SayHello(hello);
  v1::WorkerCommand command;
  ASSERT_TRUE(session.Hear(&command));
  ASSERT_TRUE(command.has_reject());
  EXPECT_TRUE(command.reject().fatal());
  EXPECT_THAT(command.reject().reason(), AllOf(HasSubstr("9 to 9"), HasSubstr("10 to 11")));
  EXPECT_EQ(EndOf(session).error_code(), grpc::StatusCode::ABORTED);
}

TEST_F(SessionTest, ASessionBeginsWithHello) {
  Start();
  Session session(server_->address());
  v1::WorkerMessage message;
  message.mutable_heartbeat();
  session.Say(message);
  const grpc::Status status = EndOf(session);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("begins with hello"));
}

TEST_F(SessionTest, WhoSaysNothingIsSentAway) {
  options_.hello_timeout = absl::Milliseconds(50);
  Start();
  Session session(server_->address());
  const grpc::Status status = EndOf(session);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_THAT(status.error_message(), HasSubstr("no hello"));
}

TEST_F(SessionTest, AMessageAboveTheLimitEndsTheSession) {
  Start();
  Session session(server_->address());
  session.SayHello(HelloOf("worker1"));
  v1::WorkerMessage message;
  message.mutable_log()->set_text(std::string(kMaxMessageBytes + 1, 'x'));
  session.Say(message);
  EXPECT_FALSE(EndOf(session).ok());
  EXPECT_TRUE(WaitUntil([&] { return Connected(*control_) == 0; }));
}

TEST_F(SessionTest, ANewerSessionOfTheSameWorkerTakesThePlace) {
  Start();
  Session first(server_->address());
  first.SayHello(HelloOf("worker1"));
  v1::WorkerCommand command;
  ASSERT_TRUE(first.Hear(&command));
  Session second(server_->address());
  second.SayHello(HelloOf("worker1"));
  ASSERT_TRUE(second.Hear(&command));
  EXPECT_TRUE(command.has_welcome());
  const grpc::Status status = EndOf(first);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_THAT(status.error_message(), HasSubstr("newer session"));
  EXPECT_EQ(Connected(*control_), 1u);
}

// Many more messages than a session may have waiting: reading pauses and goes on.
TEST_F(SessionTest, AFloodOfMessagesIsTakenInPieces) {
  Start();
  Session session(server_->address());
  session.SayHello(HelloOf("worker1"));
  v1::WorkerCommand command;
  ASSERT_TRUE(session.Hear(&command));
  v1::WorkerMessage message;
  for (uint64_t i = 1; i <= 5'000; ++i) {
    message.mutable_heartbeat()->set_memory_used_bytes(i);
    ASSERT_TRUE(session.Say(message));
  }
  session.CloseMySide();
  EXPECT_TRUE(EndOf(session).ok());
  EXPECT_TRUE(WaitUntil([&] {
    CallContext context;
    v1::ListWorkersReply workers;
    EXPECT_TRUE(control_->ListWorkers(&context.grpc, {}, &workers).ok());
    return workers.workers(0).memory_used_bytes() == 5'000;
  }));
}

TEST_F(SessionTest, StoppingEndsSessionsWithASentence) {
  Start();
  Session session(server_->address());
  session.SayHello(HelloOf("worker1"));
  v1::WorkerCommand command;
  ASSERT_TRUE(session.Hear(&command));
  const MonoTime start = Now();
  EXPECT_TRUE(server_->Stop(absl::Seconds(30)));
  EXPECT_LT(Now() - start, absl::Seconds(15));  // then streams are cut off
  const grpc::Status status = EndOf(session);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr("shutting down"));
}

TEST_F(SessionTest, TwoHundredSessionsCostNoThreadsAndNoTime) {
  Start();
  std::vector<std::unique_ptr<Session>> sessions;
  const auto join = [&](int i) {
    auto& session = sessions.emplace_back(std::make_unique<Session>(server_->address()));
    session->SayHello(HelloOf(fmt::format("worker{}", i)));
    v1::WorkerCommand command;
    ASSERT_TRUE(session->Hear(&command));
    ASSERT_TRUE(command.has_welcome()) << command.ShortDebugString();
  };
  // gRPC's own threads come with the first calls.
  for (int i = 0; i < 20; ++i) join(i);
  const size_t threads = ThreadsOfThisProcess();
  for (int i = 20; i < 200; ++i) join(i);
  EXPECT_EQ(Connected(*control_), 200u);
  EXPECT_LT(ThreadsOfThisProcess(), threads + 20);

  // A second without a word; what passes is the time of a call that has to wait for its deadline.
  const double before = CpuSeconds();
  CallContext context;
  context.grpc.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(1));
  v1::EventsRequest request;
  request.set_follow(true);
  const auto reader = control_->ListEvents(&context.grpc, request);
  grpc::Status status;
  ReadAll<v1::Event>(reader, &status);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  const double busy = CpuSeconds() - before;
  RecordProperty("idle_cpu_ms", static_cast<int>(1e3 * busy));
  EXPECT_LT(busy, 0.25);  // of both ends, on a machine that may be busy with other things
}

}  // namespace
}  // namespace longhaul::coordinator
