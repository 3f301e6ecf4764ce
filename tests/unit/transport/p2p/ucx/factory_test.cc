// What people get wrong about addresses, each with its sentence; and who UCX listens to.
#include "transport/p2p/ucx/factory.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "base/notification.h"
#include "base/unique_fd.h"
#include "transport/p2p/ucx/handles.h"
#include "transport/p2p/ucx/socket_address.h"

namespace longhaul::transport::ucx {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(20);

std::string Words(const Status& status) {
  return std::string(Message(status));
}

class QuietHandler : public LinkHandler {
 public:
  void OnFrame(Lane, std::span<const std::byte>) override {}
  void OnClosed(const Status&) override {}
};

LinkKey Key() {
  return {RunId("demo-ab12cd"), Stamp(1), EdgeId(0)};
}

// A plain TCP connect: 0 or errno.
int PlainConnect(const std::string& address) {
  const auto parsed = ParseAddress(address, /*resolve=*/false);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int result = connect(fd, parsed->get(), sizeof(sockaddr_in)) == 0 ? 0 : errno;
  close(fd);
  return result;
}

std::string PortOf(const Transport& transport) {
  return transport.address().substr(transport.address().rfind(':') + 1);
}

// Has `listener` expect a link, from the hosts of `peer_at` if there are any.
void ExpectLink(Transport& listener, const std::vector<std::string>& peer_at = {}) {
  listener.Expect(Key(), "secret", std::make_shared<QuietHandler>(), {.peer_at = peer_at},
                  Deadline::After(kPatience),
                  [](const StatusOr<std::shared_ptr<Link>>& link) { EXPECT_TRUE(link.ok()); });
}

// Dials that link. `opened` is notified, whether it opens or not.
void DialLink(Transport& dialler, const std::string& address, Notification* opened) {
  dialler.Dial({address}, Key(), "secret", std::make_shared<QuietHandler>(), {},
               Deadline::After(kPatience), [opened](const StatusOr<std::shared_ptr<Link>>& link) {
                 EXPECT_TRUE(link.ok()) << link.status();
                 opened->Notify();
               });
}

// UCX's TCP writes past its buffers there, so no address of a peer may lead to it.
TEST(UcxFactoryTest, RefusesIpv6OnBothSides) {
  const Status listens = CreateTransport({.bind_address = "[::1]:0"}).status();
  EXPECT_EQ(listens.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Words(listens), HasSubstr("take transport tcp"));
  const auto transport = CreateTransport({.bind_address = "127.0.0.1:0"});
  ASSERT_TRUE(transport.ok()) << transport.status();
  for (const std::string address : {"[::1]:7000", "[fd00::2]:7000"}) {
    Notification done;
    Status status;
    (*transport)
        ->Dial({address}, Key(), "secret", std::make_shared<QuietHandler>(), {},
               Deadline::After(kPatience), [&](const auto& link) {
                 status = link.status();
                 done.Notify();
               });
    ASSERT_TRUE(done.WaitFor(kPatience));
    EXPECT_THAT(Words(status), HasSubstr("does not work over IPv6"));
  }
}

// No name server is asked, and nobody waits for the deadline.
TEST(UcxFactoryTest, DialsNothingThatIsNoAddress) {
  const auto transport = CreateTransport({.bind_address = "127.0.0.1:0"});
  ASSERT_TRUE(transport.ok()) << transport.status();
  for (const std::string bad : {"", "here", "127.0.0.1:http", ":7000", "::1:7000"}) {
    Notification done;
    Status status;
    (*transport)
        ->Dial({bad}, Key(), "secret", std::make_shared<QuietHandler>(), {},
               Deadline::After(absl::Hours(1)), [&](const auto& link) {
                 status = link.status();
                 done.Notify();
               });
    ASSERT_TRUE(done.WaitFor(kPatience)) << bad;
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(Words(status), HasSubstr("expected host:port"));
  }
}

TEST(UcxFactoryTest, SaysWhichPortItGot) {
  const auto transport = CreateTransport({.bind_address = "127.0.0.1:0"});
  ASSERT_TRUE(transport.ok()) << transport.status();
  EXPECT_THAT((*transport)->address(), ::testing::StartsWith("127.0.0.1:"));
  EXPECT_NE(PortOf(**transport), "0");
}

TEST(UcxFactoryTest, WhatIsNoAddress) {
  for (const std::string bad : {"", "here", "127.0.0.1", "127.0.0.1:", "127.0.0.1:70000",
                                "127.0.0.1:http", ":7000", "::1:7000"}) {
    const Status status = CreateTransport({.bind_address = bad}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad << ": " << status;
    EXPECT_THAT(Words(status), HasSubstr("\"" + bad + "\""));
  }
}

TEST(UcxFactoryTest, EveryInterfaceIsNoAnswer) {
  const Status status = CreateTransport({.bind_address = "0.0.0.0:0"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(Words(status), HasSubstr("name the one address"));
}

TEST(UcxFactoryTest, AnAddressOfAnotherHost) {
  const Status status = CreateTransport({.bind_address = "203.0.113.7:0"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(Words(status), HasSubstr("203.0.113.7 is not an address of this host"));
  EXPECT_THAT(Words(status), HasSubstr("127.0.0.1 (lo)"));
}

TEST(UcxFactoryTest, ADeviceThatThereIsNot) {
  const Status status =
      CreateTransport({.bind_address = "127.0.0.1:0", .network_device = "nosuch0"}).status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(Words(status), HasSubstr("nosuch0"));
}

TEST(UcxFactoryTest, APortInUse) {
  const auto first = CreateTransport({.bind_address = "127.0.0.1:0"});
  ASSERT_TRUE(first.ok()) << first.status();
  const Status status = CreateTransport({.bind_address = (*first)->address()}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists) << status;
  EXPECT_THAT(Words(status), HasSubstr((*first)->address()));
  EXPECT_THAT(Words(status), HasSubstr("in use"));
}

TEST(UcxFactoryTest, TheSamePortAgainAtOnce) {
  auto first = CreateTransport({.bind_address = "127.0.0.1:0"});
  ASSERT_TRUE(first.ok()) << first.status();
  const std::string address = (*first)->address();
  for (int i = 0; i < 3; ++i) {
    first->reset();
    first = CreateTransport({.bind_address = address});
    ASSERT_TRUE(first.ok()) << first.status();
    EXPECT_EQ((*first)->address(), address);
  }
}

TEST(UcxFactoryTest, ListensAtItsOneAddressOnly) {
  const auto transport = CreateTransport({.bind_address = "127.0.0.1:0", .admits_all = true});
  ASSERT_TRUE(transport.ok()) << transport.status();
  EXPECT_EQ(PlainConnect("127.0.0.2:" + PortOf(**transport)), ECONNREFUSED);
  EXPECT_EQ(PlainConnect((*transport)->address()), 0);
}

// Connections that say nothing do no harm. (Foreign bytes do: docs/gotchas/transport.md.)
TEST(UcxFactoryTest, StrangersThatHangUp) {
  const auto listener = CreateTransport({.bind_address = "127.0.0.1:0", .admits_all = true});
  const auto dialler = CreateTransport({.bind_address = "127.0.0.1:0"});
  ASSERT_TRUE(listener.ok() && dialler.ok());
  for (int i = 0; i < 200; ++i) EXPECT_EQ(PlainConnect((*listener)->address()), 0);
  Notification opened;
  ExpectLink(**listener);
  DialLink(**dialler, (*listener)->address(), &opened);
  EXPECT_TRUE(opened.WaitFor(kPatience));
}

// A link that is dialled before the other side expects it opens soon after: the first packets are
// dropped, and the dialler knocks again before TCP would.
TEST(UcxFactoryTest, OpensForAPeerThatCameTooEarly) {
  const auto listener = CreateTransport({.bind_address = "127.0.0.1:0"});
  const auto dialler = CreateTransport({.bind_address = "127.0.0.1:0"});
  ASSERT_TRUE(listener.ok() && dialler.ok());
  Notification opened;
  DialLink(**dialler, (*listener)->address(), &opened);
  ExpectLink(**listener, {(*dialler)->address()});
  EXPECT_TRUE(opened.WaitFor(kPatience));
}

// Who knows the port, and is at none of the addresses from which the peer may come.
TEST(UcxFactoryTest, LetsNobodyElseConnect) {
  const auto listener = CreateTransport({.bind_address = "127.0.0.1:0"});
  const auto dialler = CreateTransport({.bind_address = "127.0.0.1:0"});
  ASSERT_TRUE(listener.ok() && dialler.ok());
  const auto at = ParseAddress((*listener)->address(), /*resolve=*/false);
  const auto from = ParseAddress("127.0.0.2:0", /*resolve=*/false);
  const UniqueFd stranger(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  ASSERT_EQ(bind(stranger.get(), from->get(), from->size), 0);
  ASSERT_EQ(connect(stranger.get(), at->get(), at->size), -1);
  Notification opened;
  ExpectLink(**listener, {(*dialler)->address()});
  DialLink(**dialler, (*listener)->address(), &opened);
  ASSERT_TRUE(opened.WaitFor(kPatience));
  // On loopback an answer would be there: the peer's whole handshake came later.
  tcp_info info{};
  socklen_t size = sizeof(info);
  ASSERT_EQ(getsockopt(stranger.get(), IPPROTO_TCP, TCP_INFO, &info, &size), 0);
  EXPECT_EQ(info.tcpi_state, TCP_SYN_SENT);
}

Status DialFails(const std::string& address) {
  const auto transport = CreateTransport({.bind_address = "127.0.0.1:0"});
  if (!transport.ok()) return transport.status();
  Notification ended;
  Status status;
  (*transport)
      ->Dial({address}, Key(), "secret", std::make_shared<QuietHandler>(), {},
             Deadline::After(absl::Seconds(3)), [&](const StatusOr<std::shared_ptr<Link>>& link) {
               status = link.status();
               ended.Notify();
             });
  EXPECT_TRUE(ended.WaitFor(kPatience));
  return status;
}

TEST(UcxFactoryTest, ARefusedDialSaysSo) {
  const Status status = DialFails("127.0.0.1:1");
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(Words(status), HasSubstr("127.0.0.1:1: connect: Connection refused"));
}

TEST(UcxFactoryTest, ANameThatDoesNotResolveSaysSo) {
  const Status status = DialFails("no-such-host.invalid:7000");
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(Words(status), HasSubstr("no-such-host.invalid"));
}

// A bare container may have no /etc/hosts.
bool LocalhostResolves() {
  const addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  if (getaddrinfo("localhost", nullptr, &hints, &found) != 0) return false;
  freeaddrinfo(found);
  return true;
}

TEST(UcxFactoryTest, DialsByName) {
  if (!LocalhostResolves()) GTEST_SKIP() << "localhost does not resolve on this machine";
  const auto listener = CreateTransport({.bind_address = "127.0.0.1:0", .admits_all = true});
  ASSERT_TRUE(listener.ok()) << listener.status();
  const Status status = DialFails("localhost:" + PortOf(**listener));
  // It reached the listener, which does not expect it.
  EXPECT_THAT(Words(status), HasSubstr("is not expected there"));
}

// UCX drops settings that it does not know without a word. This one shows: what it sends in one
// piece bounds a message's header.
TEST(UcxFactoryTest, AWholeFrameIsOneSegment) {
  const auto context = Context::Create("lo");
  ASSERT_TRUE(context.ok()) << context.status();
  const auto worker = Worker::Create(*context);
  ASSERT_TRUE(worker.ok()) << worker.status();
  ucp_worker_attr_t attributes{};
  attributes.field_mask = UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER;
  ASSERT_EQ(ucp_worker_query((*worker)->get(), &attributes), UCS_OK);
  EXPECT_GT(attributes.max_am_header, kMaxFramePayloadBytes);
}

}  // namespace
}  // namespace longhaul::transport::ucx
