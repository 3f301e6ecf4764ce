// Who may call, and how much: every call checks the token, and what is too much is refused.
#include <arpa/inet.h>
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/address.h"
#include "coordinator/rpc/intake.h"
#include "coordinator/rpc/refuse_caller.h"
#include "proto/rpc/listener.h"
#include "tests/unit/coordinator/rpc/fake_worker.h"

namespace longhaul::coordinator {
namespace {

using ::longhaul::testing::TempDir;
using ::testing::HasSubstr;

std::unique_ptr<CoordinatorServer> Serve(const TempDir& folder) {
  auto server = CoordinatorServer::Start({.listen = "127.0.0.1:0",
                                          .state_dir = folder.path() + "/state",
                                          .insecure = true,
                                          .token = kToken});
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

std::vector<std::string> AllMethods() {
  std::vector<std::string> methods;
  for (const char* name :
       {"longhaul.v1.ControlService", "longhaul.v1.WorkerService", "longhaul.v1.StandbyService"}) {
    const auto* service =
        google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(name);
    for (int i = 0; i < service->method_count(); ++i) {
      if (service->method(i)->name() == "GetTerm") continue;  // for everybody
      methods.push_back(fmt::format("/{}/{}", name, service->method(i)->name()));
    }
  }
  return methods;
}

// A call of any method with an empty message.
class AnyCall {
 public:
  AnyCall(grpc::GenericStub* stub, const std::string& method, std::string_view token)
      : context_(token) {
    grpc::Slice empty;
    call_ = stub->PrepareUnaryCall(&context_.grpc, method, grpc::ByteBuffer(&empty, 1), &queue_);
    call_->StartCall();
    call_->Finish(&reply_, &status_, nullptr);
  }
  grpc::Status Wait() {
    void* tag = nullptr;
    bool ok = false;
    EXPECT_TRUE(queue_.Next(&tag, &ok));
    return status_;
  }

 private:
  grpc::CompletionQueue queue_;
  CallContext context_;
  grpc::ByteBuffer reply_;
  grpc::Status status_;
  std::unique_ptr<grpc::GenericClientAsyncResponseReader> call_;
};

TEST(LimitsTest, EveryCallChecksTheToken) {
  const TempDir folder;
  const auto server = Serve(folder);
  grpc::GenericStub stub(MakeChannel(server->address()));
  const std::vector<std::string> methods = AllMethods();
  EXPECT_GE(methods.size(), 15u);
  const std::string right(kToken);
  for (const std::string& token :
       {std::string(), std::string("wrong"), right + "x", right.substr(1), "x" + right}) {
    std::vector<std::unique_ptr<AnyCall>> calls;
    for (const std::string& method : methods) {
      calls.push_back(std::make_unique<AnyCall>(&stub, method, token));
    }
    for (size_t i = 0; i < methods.size(); ++i) {
      const grpc::Status status = calls[i]->Wait();
      EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED) << methods[i];
      EXPECT_THAT(status.error_message(), HasSubstr("--token-file")) << methods[i];
      EXPECT_EQ(status.error_message().find(right), std::string::npos) << methods[i];
    }
  }
}

TEST(LimitsTest, AWrongTokenIsAnsweredLate) {
  const TempDir folder;
  const auto server = Serve(folder);
  grpc::GenericStub stub(MakeChannel(server->address()));
  ASSERT_TRUE(AnyCall(&stub, "/longhaul.v1.ControlService/Info", kToken).Wait().ok());
  const MonoTime begin = Now();
  (void)AnyCall(&stub, "/longhaul.v1.ControlService/Info", "a wrong token").Wait();
  EXPECT_GE(Now() - begin, absl::FromChrono(kRefusalDelay));
}

TEST(LimitsTest, AServerWithRefusalsUnderWayStops) {
  const TempDir folder;
  auto server = Serve(folder);
  std::vector<std::unique_ptr<Session>> refused;
  for (int i = 0; i < 8; ++i) {
    refused.push_back(std::make_unique<Session>(server->address(), "a wrong token"));
  }
  const Deadline deadline = Deadline::After(absl::FromChrono(kPatience));
  while (waiting_refusals == 0 && !deadline.Expired()) std::this_thread::yield();
  server.reset();
  v1::WorkerCommand command;
  for (const auto& session : refused) EXPECT_FALSE(session->Hear(&command));
}

// A connection that may say anything.
class Stranger {
 public:
  explicit Stranger(const std::string& address) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(ParseHostPort(address)->port);
    EXPECT_EQ(connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
  }
  ~Stranger() { close(fd_); }
  Stranger(const Stranger&) = delete;
  // False once the other side has hung up.
  bool Say(std::string_view bytes) {
    return send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0;
  }
  // Whether it hangs up in time; takes what it says before.
  bool HearsTheEnd() {
    const Deadline deadline = Deadline::After(absl::FromChrono(kPatience));
    while (!deadline.Expired()) {
      pollfd ready{.fd = fd_, .events = POLLIN, .revents = 0};
      char buffer[4096];
      if (poll(&ready, 1, 100) > 0 && recv(fd_, buffer, sizeof(buffer), 0) <= 0) return true;
    }
    return false;
  }

 private:
  const int fd_;
};

TEST(LimitsTest, StrangersMakeRoomForOneAnother) {
  const TempDir folder;
  const auto server = Serve(folder);
  grpc::GenericStub stub(MakeChannel(server->address()));
  ASSERT_TRUE(AnyCall(&stub, "/longhaul.v1.ControlService/Info", kToken).Wait().ok());
  Session session(server->address());
  ASSERT_TRUE(session.SayHello(HelloOf("worker1")));
  v1::WorkerCommand command;
  ASSERT_TRUE(session.Hear(&command));
  std::vector<std::unique_ptr<Stranger>> strangers;
  for (size_t i = 0; i < kMaxStrangers + 10; ++i) {
    strangers.push_back(std::make_unique<Stranger>(server->address()));
  }
  for (size_t i = 0; i < 10; ++i) EXPECT_TRUE(strangers[i]->HearsTheEnd()) << i;
  // Who has shown the token stays: the session is told how it ended, by the coordinator.
  EXPECT_TRUE(AnyCall(&stub, "/longhaul.v1.ControlService/Info", kToken).Wait().ok());
  v1::WorkerMessage message;
  message.mutable_log()->set_text(std::string(kMaxReportBytes, 'x'));
  session.Say(message);
  while (session.Hear(&command)) {
  }
  EXPECT_EQ(session.Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST(LimitsTest, AStrangerMaySayLittle) {
  const TempDir folder;
  const auto server = Serve(folder);
  Stranger stranger(server->address());
  // Greetings of HTTP/2 without end: empty SETTINGS.
  ASSERT_TRUE(stranger.Say("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"));
  const std::string settings("\0\0\0\4\0\0\0\0\0", 9);
  for (size_t said = 0; said <= 2 * kMaxStrangerBytes; said += settings.size()) {
    if (!stranger.Say(settings)) break;
  }
  EXPECT_TRUE(stranger.HearsTheEnd());
}

TEST(LimitsTest, MuchMayBeSaidOnceTheTokenIsKnown) {
  const TempDir folder;
  const auto server = Serve(folder);
  v1::SubmitRequest request;
  request.set_run_yaml(std::string(kMaxRunFileBytes + 1, ' '));
  const auto submit = [&](v1::ControlService::Stub& stub) {
    CallContext context(kToken);
    v1::SubmitReply reply;
    return stub.Submit(&context.grpc, request, &reply).error_code();
  };
  const auto stub = v1::ControlService::NewStub(MakeChannel(server->address()));
  {
    CallContext context(kToken);
    v1::InfoReply reply;
    ASSERT_TRUE(stub->Info(&context.grpc, {}, &reply).ok());
  }
  EXPECT_EQ(submit(*stub), grpc::StatusCode::INVALID_ARGUMENT);  // it arrived
}

TEST(LimitsTest, AReportThatIsTooLargeEndsItsSession) {
  const TempDir folder;
  const auto server = Serve(folder);
  Session session(server->address());
  ASSERT_TRUE(session.SayHello(HelloOf("worker1")));
  v1::WorkerCommand command;
  ASSERT_TRUE(session.Hear(&command));
  v1::WorkerMessage message;
  message.mutable_log()->set_text(std::string(kMaxReportBytes, 'x'));
  session.Say(message);
  while (session.Hear(&command)) {
  }
  const grpc::Status status = session.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("expected at most 65536 bytes"));
}

TEST(LimitsTest, ATraceMayBeLarger) {
  v1::WorkerMessage message;
  v1::StepTrace& step = *message.mutable_trace()->add_steps();
  // Counts all spans only now and then, as it takes long.
  const auto grow_above = [&](size_t bytes) {
    while (message.ByteSizeLong() <= bytes) {
      for (int i = 0; i < 1'000; ++i) step.add_spans()->set_begin_ns(1 << 30);
    }
  };
  grow_above(2 * kMaxReportBytes);
  EXPECT_TRUE(AdmitReport(&message).ok());
  grow_above(kMaxTraceBytes);
  EXPECT_EQ(AdmitReport(&message).code(), absl::StatusCode::kInvalidArgument);
}

TEST(LimitsTest, FieldsThatNobodyKnowsAreDropped) {
  v1::WorkerMessage message;
  message.mutable_step()->set_step(1);
  const size_t bytes = message.ByteSizeLong();
  // Field 900 of the step's report, with 10,000 bytes.
  const std::string field = "\xa2\x38\x90\x4e" + std::string(10'000, 'x');
  ASSERT_TRUE(message.mutable_step()->MergeFromString(field));
  ASSERT_GT(message.ByteSizeLong(), 10'000u);
  ASSERT_TRUE(AdmitReport(&message).ok());
  EXPECT_EQ(message.ByteSizeLong(), bytes);
}

TEST(LimitsTest, ATraceHasFewSteps) {
  v1::WorkerMessage message;
  for (int i = 0; i < kMaxTraceSteps; ++i) message.mutable_trace()->add_steps();
  EXPECT_TRUE(AdmitReport(&message).ok());
  message.mutable_trace()->add_steps();
  EXPECT_THAT(std::string(Message(AdmitReport(&message))),
              HasSubstr("expected at most 64 steps in a trace, got 65"));
}

TEST(LimitsTest, ManyReportsAreTakenAtTheirRate) {
  const TempDir folder;
  const auto server = Serve(folder);
  Session session(server->address());
  ASSERT_TRUE(session.SayHello(HelloOf("worker1")));
  v1::WorkerCommand command;
  ASSERT_TRUE(session.Hear(&command));
  // What is beyond the burst waits; the last one, which ends the session, comes behind them all.
  const MonoTime begin = Now();
  constexpr int kBeyond = 200;
  v1::WorkerMessage message;
  message.mutable_heartbeat();
  for (int i = 0; i < static_cast<int>(kReportBurst) + kBeyond; ++i) {
    ASSERT_TRUE(session.Say(message));
  }
  message.mutable_log()->set_text(std::string(kMaxReportBytes, 'x'));
  session.Say(message);
  while (session.Hear(&command)) {
  }
  EXPECT_EQ(session.Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_GE(Now() - begin, absl::Seconds(0.9 * kBeyond / kReportsPerSecond));
}

TEST(IntakeTest, AHelloOfAWorkerPasses) {
  v1::Hello hello = HelloOf("worker1");
  EXPECT_TRUE(AdmitHello(&hello).ok());
}

TEST(IntakeTest, AHelloIsBounded) {
  const auto refused = [](const std::function<void(v1::Hello*)>& change) {
    v1::Hello hello = HelloOf("worker1");
    change(&hello);
    return AdmitHello(&hello).code() == absl::StatusCode::kInvalidArgument;
  };
  const std::string longer(kMaxHelloTextBytes + 1, 'x');
  EXPECT_TRUE(refused([&](v1::Hello* hello) { hello->set_worker_id(longer); }));
  EXPECT_TRUE(refused([&](v1::Hello* hello) { hello->set_incarnation(longer); }));
  EXPECT_TRUE(refused([&](v1::Hello* hello) { hello->set_name(longer); }));
  EXPECT_TRUE(refused([&](v1::Hello* hello) { hello->set_version(longer); }));
  EXPECT_TRUE(refused([&](v1::Hello* hello) { hello->set_host(longer); }));
  EXPECT_TRUE(refused([&](v1::Hello* hello) { hello->set_run_id(longer); }));
  EXPECT_TRUE(refused([&](v1::Hello* hello) { hello->set_tenure(longer); }));
  EXPECT_TRUE(refused([&](v1::Hello* hello) { hello->set_leader_address(longer); }));
  EXPECT_TRUE(refused([&](v1::Hello* hello) { hello->add_endpoints()->add_addresses(longer); }));
  EXPECT_TRUE(refused([&](v1::Hello* hello) { hello->add_endpoints()->set_transport(longer); }));
  EXPECT_TRUE(refused([&](v1::Hello* hello) {
    for (int i = 0; i <= kMaxEndpoints; ++i) hello->add_endpoints();
  }));
  EXPECT_TRUE(refused([&](v1::Hello* hello) {
    v1::DataEndpoint* endpoint = hello->add_endpoints();
    for (int i = 0; i <= kMaxDataAddresses; ++i) endpoint->add_addresses("10.0.0.1:1");
  }));
  EXPECT_TRUE(refused([&](v1::Hello* hello) {
    for (int i = 0; i <= kMaxDevices; ++i) hello->add_devices();
  }));
}

// It stands among the ways of links of others: what is none would be everybody's.
TEST(IntakeTest, AWorkersRelayHasAnAddress) {
  const auto admitted = [](const std::string& address) {
    v1::Hello hello = HelloOf("worker1");
    hello.mutable_relay()->set_address(address);
    return AdmitHello(&hello).ok();
  };
  for (const char* good : {"203.0.113.7:7200", "[2001:db8::7]:7200", "relay.example:7200"}) {
    EXPECT_TRUE(admitted(good)) << good;
  }
  for (const char* bad : {"", "x", ":7200", "203.0.113.7:0", "203.0.113.7:72000",
                          "2001:db8::7:7200", "203.0.113.7#:7200", "relay\x1b[2J:7200"}) {
    EXPECT_FALSE(admitted(bad)) << bad;
  }
}

TEST(IntakeTest, TextsForPeopleAreTidied) {
  v1::Hello hello = HelloOf("worker1");
  hello.set_host("a\x1b[2Jb");
  ASSERT_TRUE(AdmitHello(&hello).ok());
  EXPECT_EQ(hello.host(), "a?[2Jb");
  v1::WorkerMessage message;
  message.mutable_log()->set_text("a\nb" + std::string(2 * kMaxLineBytes, 'x'));
  message.mutable_log()->set_level("\x1b" + std::string(100, 'l'));
  ASSERT_TRUE(AdmitReport(&message).ok());
  EXPECT_EQ(message.log().text().size(), kMaxLineBytes + 3);
  EXPECT_TRUE(message.log().text().starts_with("a bx"));
  EXPECT_TRUE(message.log().level().starts_with("?l"));
  EXPECT_LE(message.log().level().size(), 19u);
}

TEST(IntakeTest, ARequestIsBounded) {
  const auto refused = [](const std::function<void(v1::SubmitRequest*)>& change) {
    v1::SubmitRequest request;
    EXPECT_TRUE(AdmitSubmit(request).ok());
    change(&request);
    return AdmitSubmit(request).code() == absl::StatusCode::kInvalidArgument;
  };
  const std::string name(kMaxNameBytes + 1, 'x');
  EXPECT_TRUE(refused([](auto* r) { r->set_run_yaml(std::string(kMaxRunFileBytes + 1, ' ')); }));
  EXPECT_TRUE(refused([&](auto* r) { r->set_file_name(name); }));
  EXPECT_TRUE(refused([&](auto* r) { r->add_data_files()->set_name(name); }));
  EXPECT_TRUE(refused([](auto* r) {
    for (int i = 0; i <= kMaxOverrides; ++i) r->add_overrides("a=b");
  }));
  EXPECT_TRUE(refused([](auto* r) {
    for (int i = 0; i <= kMaxDataFiles; ++i) r->add_data_files();
  }));
  EXPECT_TRUE(refused([](auto* r) { r->set_assumed_line_bits_per_second(0); }));
  EXPECT_TRUE(
      refused([](auto* r) { r->set_assumed_line_bits_per_second(kMaxAssumedBitsPerSecond + 1); }));
  for (const double delay : {-0.001, 2 * kMaxAssumedDelaySeconds, std::nan(""), HUGE_VAL}) {
    EXPECT_TRUE(refused([&](auto* r) { r->set_assumed_delay_seconds(delay); })) << delay;
  }
}

}  // namespace
}  // namespace longhaul::coordinator
