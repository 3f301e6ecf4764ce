#include "deploy/cluster/relay/control.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <thread>

#include "tests/support/temp_dir.h"

namespace longhaul::relay {
namespace {

using ::longhaul::testing::TempDir;
using ::testing::HasSubstr;

RelayConfig Example() {
  RelayConfig config;
  config.ports = {{"d1", true}, {"d2", false}};
  config.paths = {{}, {absl::Milliseconds(25), absl::Nanoseconds(1), 0.001}, {{}, {}, 0.5}, {}};
  return config;
}

TEST(RelayControl, AWorkerIsKnownByItsAddress) {
  EXPECT_EQ(MacAddress(1), "02:6c:68:00:00:01");
  EXPECT_EQ(MacAddress(300), "02:6c:68:00:01:2c");
  const uint8_t address[] = {0x02, 0x6c, 0x68, 0x00, 0x01, 0x2c};
  EXPECT_EQ(NumberOfMac(address), 300u);
  const uint8_t broadcast[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
  EXPECT_EQ(NumberOfMac(broadcast), 0u);
}

TEST(RelayControl, WhatIsWrittenIsRead) {
  const auto read = RelayConfigFromJson(ToJson(Example()));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, Example());
}

TEST(RelayControl, ImpossibleConfigurationsAreErrors) {
  const std::string text = ToJson(Example());
  for (size_t length = 0; length < text.size(); ++length) {
    EXPECT_TRUE(absl::IsInvalidArgument(RelayConfigFromJson(text.substr(0, length)).status()));
  }
  const auto with = [](const std::string& path) {
    return RelayConfigFromJson(R"({"ports":[{"device":"d1","connected":true}],"paths":[)" + path +
                               "]}")
        .status();
  };
  EXPECT_TRUE(with(R"({"from":0,"to":0,"delay_ns":5,"jitter_ns":5,"loss":0})").ok());
  for (const char* path : {R"({"from":1,"to":0,"delay_ns":5,"jitter_ns":0,"loss":0})",
                           R"({"from":0,"to":-1,"delay_ns":5,"jitter_ns":0,"loss":0})",
                           R"({"from":0,"to":0,"delay_ns":-5,"jitter_ns":0,"loss":0})",
                           R"({"from":0,"to":0,"delay_ns":5,"jitter_ns":6,"loss":0})",
                           R"({"from":0,"to":0,"delay_ns":10000000001,"jitter_ns":0,"loss":0})",
                           R"({"from":0,"to":0,"delay_ns":5,"jitter_ns":0,"loss":1})", "7"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(with(path))) << path;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(RelayConfigFromJson(R"({"ports":[],"paths":[]})").status()));
}

class RelayControlSocket : public ::testing::Test {
 protected:
  // Answers one request.
  std::thread Serve(std::function<StatusOr<RelayReport>(const Request&)> serve,
                    absl::Duration patience = absl::Seconds(10)) {
    StatusOr<UniqueFd> listener = ListenForRequests(path_);
    EXPECT_TRUE(listener.ok()) << listener.status();
    return std::thread([fd = *std::move(listener), serve = std::move(serve), patience] {
      pollfd ready{fd.get(), POLLIN, 0};
      poll(&ready, 1, 30'000);
      ServeRequest(fd.get(), serve, patience);
    });
  }
  static Deadline Soon() { return Deadline::After(absl::Seconds(30)); }

  TempDir folder_;
  const std::string path_ = folder_.path() + "/relay.sock";
};

TEST_F(RelayControlSocket, CarriesTheConfigurationThereAndTheReportBack) {
  std::optional<Request> got;
  std::thread server = Serve([&](const Request& request) {
    got = request;
    return RelayReport{.arrived_packets = 1,
                       .lost_packets = 2,
                       .overflowed_packets = 3,
                       .missed_packets = 4,
                       .refused_packets = 5,
                       .failed_packets = 9,
                       .held_bytes = 6,
                       .threads = 7,
                       .cpu_time = absl::Milliseconds(8)};
  });
  const RelayConfig config = Example();
  const auto report = AskRelay(path_, &config, Soon());
  server.join();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->arrived_packets, 1u);
  EXPECT_EQ(report->lost_packets, 2u);
  EXPECT_EQ(report->overflowed_packets, 3u);
  EXPECT_EQ(report->missed_packets, 4u);
  EXPECT_EQ(report->refused_packets, 5u);
  EXPECT_EQ(report->failed_packets, 9u);
  EXPECT_EQ(report->held_bytes, 6u);
  EXPECT_EQ(report->threads, 7u);
  EXPECT_EQ(report->cpu_time, absl::Milliseconds(8));
  ASSERT_TRUE(got && got->configure);
  EXPECT_EQ(got->config, config);
  struct stat info {};
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(RelayControlSocket, AQuestionAloneChangesNothing) {
  bool configured = true;
  std::thread server = Serve([&](const Request& request) {
    configured = request.configure;
    return RelayReport{};
  });
  EXPECT_TRUE(AskRelay(path_, nullptr, Soon()).ok());
  server.join();
  EXPECT_FALSE(configured);
}

TEST_F(RelayControlSocket, WhatTheRelayRefusesIsTheAskersError) {
  std::thread server = Serve([](const Request&) -> StatusOr<RelayReport> {
    return absl::FailedPreconditionError("no such interface");
  });
  const auto answer = AskRelay(path_, nullptr, Soon());
  server.join();
  EXPECT_TRUE(absl::IsFailedPrecondition(answer.status())) << answer.status();
  EXPECT_THAT(std::string(Message(answer.status())), HasSubstr("no such interface"));
}

TEST_F(RelayControlSocket, WhoTalksForEverIsNotListenedToForEver) {
  std::thread server = Serve([](const Request&) { return RelayReport{}; }, absl::Milliseconds(50));
  const UniqueFd slow(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  path_.copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(connect(slow.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  // Byte by byte, never silent for long, until nobody is there.
  while (send(slow.get(), " ", 1, MSG_NOSIGNAL) == 1) std::this_thread::yield();
  server.join();
}

TEST_F(RelayControlSocket, AnAnswerMayTakeLongerThanARequest) {
  constexpr absl::Duration kPatience = absl::Milliseconds(250);
  std::thread server = Serve(
      [&](const Request&) {
        for (const Deadline late = Deadline::After(kPatience); !late.Expired();) {
          std::this_thread::yield();
        }
        return RelayReport{.threads = 3};
      },
      kPatience);
  const auto answer = AskRelay(path_, nullptr, Soon());
  server.join();
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->threads, 3u);
}

TEST_F(RelayControlSocket, WhoHangsUpIsNotThere) {
  StatusOr<UniqueFd> listener = ListenForRequests(path_);
  ASSERT_TRUE(listener.ok()) << listener.status();
  std::thread server([fd = *std::move(listener)] {
    pollfd ready{fd.get(), POLLIN, 0};
    poll(&ready, 1, 30'000);
    const UniqueFd socket(accept(fd.get(), nullptr, nullptr));
    shutdown(socket.get(), SHUT_WR);
    char rest[4096];  // or what it says would meet a closed socket
    while (recv(socket.get(), rest, sizeof rest, 0) > 0) {
    }
  });
  const Status status = AskRelay(path_, nullptr, Soon()).status();
  server.join();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
}

TEST_F(RelayControlSocket, NobodyThere) {
  EXPECT_TRUE(absl::IsUnavailable(AskRelay(path_, nullptr, Soon()).status()));
  EXPECT_TRUE(
      absl::IsInvalidArgument(AskRelay("/" + std::string(200, 'x'), nullptr, Soon()).status()));
}

}  // namespace
}  // namespace longhaul::relay
