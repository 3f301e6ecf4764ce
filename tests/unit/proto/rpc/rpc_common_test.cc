#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/address.h"
#include "proto/rpc/channel.h"
#include "proto/rpc/status.h"

namespace longhaul {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(HostPortTest, ReadsWhatFlagsHave) {
  const struct {
    const char* text;
    const char* host;
    uint16_t port;
  } kCases[] = {{"127.0.0.1:7070", "127.0.0.1", 7070},
                {"localhost:0", "localhost", 0},
                {"coordinator.example:65535", "coordinator.example", 65535},
                {"[::1]:7070", "::1", 7070}};
  for (const auto& one : kCases) {
    const StatusOr<HostPort> parsed = ParseHostPort(one.text);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->host, one.host);
    EXPECT_EQ(parsed->port, one.port);
    EXPECT_EQ(ToString(*parsed), one.text);
  }
}

TEST(HostPortTest, RefusesTheRest) {
  for (const char* text : {"", "host", ":7070", "host:", "host:x", "host:-1", "host:65536",
                           "host:7070x", "::1:7070", "[]:1", "host: 1"}) {
    const StatusOr<HostPort> parsed = ParseHostPort(text);
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(Message(parsed.status())), HasSubstr("expected host:port"));
  }
}

TEST(HostPortTest, ReadsListsOfThem) {
  const auto read = [](const char* text) {
    return ParseAddressList(text).value_or(std::vector<std::string>());
  };
  EXPECT_THAT(read("a:7070"), ElementsAre("a:7070"));
  EXPECT_THAT(read("a:7070,b:7070"), ElementsAre("a:7070", "b:7070"));
  EXPECT_THAT(read(" a:7070, [::1]:7071 "), ElementsAre("a:7070", "[::1]:7071"));
  const struct {
    const char* text;
    const char* says;
  } kWrong[] = {
      {"", "address '': expected host:port"},
      {"a:7070,", "address '': expected host:port"},
      {"a:7070,b", "address 'b': expected host:port"},
      {"a:7070,b:7070,a:7070", "expected each address once, but a:7070 stands there twice"}};
  for (const auto& one : kWrong) {
    const auto list = ParseAddressList(one.text);
    EXPECT_EQ(list.status().code(), absl::StatusCode::kInvalidArgument) << one.text;
    EXPECT_THAT(std::string(Message(list.status())), HasSubstr(one.says)) << one.text;
  }
}

TEST(HostPortTest, KnowsLoopback) {
  for (const char* host : {"127.0.0.1", "127.1.2.3", "::1", "localhost"}) {
    EXPECT_TRUE(IsLoopback(host)) << host;
  }
  for (const char* host : {"0.0.0.0", "::", "10.0.0.1", "128.0.0.1", "localhost.example", "",
                           "127.0.0.1.example", "::ffff:10.0.0.1"}) {
    EXPECT_FALSE(IsLoopback(host)) << host;
  }
}

TEST(AddressTest, KnowsWhatNoOpenNetworkHas) {
  for (const char* host :
       {"127.0.0.1", "10.255.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1",
        "100.127.255.255", "169.254.7.7", "::1", "fd00::1", "fe80::1"}) {
    EXPECT_TRUE(IsPrivate(host)) << host;
  }
  for (const char* host : {"11.0.0.1", "172.15.0.1", "172.32.0.1", "192.169.0.1", "100.63.0.1",
                           "100.128.0.1", "0.0.0.0", "::", "2001:db8::1", "host.example", ""}) {
    EXPECT_FALSE(IsPrivate(host)) << host;
  }
}

TEST(RpcStatusTest, EveryCodeCrossesAndComesBack) {
  for (int code = 0; code <= 16; ++code) {
    const Status status(static_cast<absl::StatusCode>(code), code == 0 ? "" : "a sentence");
    const grpc::Status there = ToGrpc(status);
    EXPECT_EQ(static_cast<int>(there.error_code()), code);
    EXPECT_EQ(FromGrpc(there), status);
  }
}

TEST(RpcStatusTest, SaysWhatFailed) {
  const grpc::Status status(grpc::StatusCode::UNAVAILABLE, "no route");
  EXPECT_EQ(Message(FromGrpc(status, "cannot reach the coordinator")),
            "cannot reach the coordinator: no route");
  EXPECT_TRUE(FromGrpc(grpc::Status::OK, "anything").ok());
}

TEST(RpcStatusTest, LongMessagesAreCutAndSaySo) {
  const grpc::Status status =
      ToGrpc(absl::InvalidArgumentError(std::string(kMaxErrorBytes + 7, 'x')));
  EXPECT_LT(status.error_message().size(), kMaxErrorBytes + 64);
  EXPECT_THAT(status.error_message(), HasSubstr("(7 more bytes)"));
}

}  // namespace
}  // namespace longhaul
