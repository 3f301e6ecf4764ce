#include "transport/p2p/ucx/port_filter.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <string>

#include "base/unique_fd.h"

namespace longhaul::transport::ucx {
namespace {

using ::testing::Contains;
using ::testing::Not;

SocketAddress At(const std::string& text) {
  return *ParseAddress(text, /*resolve=*/false);
}

class PortFilterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(listener_);
    const SocketAddress any = At("127.0.0.1:0");
    ASSERT_EQ(::bind(listener_.get(), any.get(), any.size), 0);
    ASSERT_EQ(::listen(listener_.get(), 16), 0);
    own_.size = sizeof(own_.storage);
    ASSERT_EQ(
        ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&own_.storage), &own_.size), 0);
  }
  std::shared_ptr<PortFilter> Filter() {
    auto filter = PortFilter::Create({listener_.get()}, own_);
    EXPECT_TRUE(filter.ok()) << filter.status();
    return *std::move(filter);
  }
  // Begins to connect from this host.
  UniqueFd Dial(const std::string& host) const {
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const SocketAddress from = At(host + ":0");
    EXPECT_EQ(::bind(fd.get(), from.get(), from.size), 0);
    EXPECT_NE(::connect(fd.get(), own_.get(), own_.size), 0);
    return fd;
  }
  static bool Connects(const UniqueFd& fd) {
    pollfd ready{.fd = fd.get(), .events = POLLOUT, .revents = 0};
    return ::poll(&ready, 1, /*timeout=*/30'000) == 1 && (ready.revents & POLLERR) == 0;
  }
  // Loopback delivers at once: what the filter lets through has an answer when the next host's
  // connection is there.
  static bool IsUnanswered(const UniqueFd& fd) {
    tcp_info info{};
    socklen_t size = sizeof(info);
    EXPECT_EQ(::getsockopt(fd.get(), IPPROTO_TCP, TCP_INFO, &info, &size), 0);
    return info.tcpi_state == TCP_SYN_SENT;
  }

  const UniqueFd listener_{::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
  SocketAddress own_;
};

TEST_F(PortFilterTest, ConnectionsComeFromAdmittedHostsAlone) {
  const auto filter = Filter();
  const UniqueFd before = Dial("127.0.0.2");
  auto admitted = filter->Admit({At("127.0.0.2:1"), At("127.0.0.4:1")});
  const UniqueFd stranger = Dial("127.0.0.3");
  EXPECT_TRUE(Connects(Dial("127.0.0.4")));
  EXPECT_TRUE(Connects(Dial("127.0.0.2")));
  EXPECT_TRUE(IsUnanswered(stranger));
  EXPECT_TRUE(IsUnanswered(before));
  // Another link to the same host.
  const auto again = filter->Admit({At("127.0.0.2:2")});
  admitted.reset();
  const UniqueFd late = Dial("127.0.0.4");
  EXPECT_TRUE(Connects(Dial("127.0.0.2")));
  EXPECT_TRUE(IsUnanswered(late));
}

// The kernel dials from the address that it dials.
TEST_F(PortFilterTest, AHostThatIsThisMachineComesFromTheOwnAddress) {
  const auto filter = Filter();
  const UniqueFd before = Dial("127.0.0.1");
  const auto admitted = filter->Admit({At("127.0.0.9:1")});
  EXPECT_TRUE(Connects(Dial("127.0.0.1")));
  EXPECT_TRUE(IsUnanswered(before));
}

TEST_F(PortFilterTest, EveryHostWhileThatIsWanted) {
  const auto filter = Filter();
  auto all = filter->AdmitAll();
  EXPECT_TRUE(Connects(Dial("127.0.0.3")));
  all.reset();
  const UniqueFd late = Dial("127.0.0.3");
  const auto admitted = filter->Admit({At("127.0.0.2:1"), At("[::1]:1")});
  EXPECT_TRUE(Connects(Dial("127.0.0.2")));
  EXPECT_TRUE(IsUnanswered(late));
}

TEST_F(PortFilterTest, WhoCameBeforeTheFilterIsOut) {
  const UniqueFd early = Dial("127.0.0.1");
  ASSERT_TRUE(Connects(early));
  const auto filter = Filter();
  pollfd ended{.fd = early.get(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&ended, 1, /*timeout=*/30'000), 1);
}

TEST_F(PortFilterTest, AdmitsAsManyHostsAsItSays) {
  const auto filter = Filter();
  std::vector<SocketAddress> hosts;
  // The last one is this machine, beside which the own address is admitted.
  for (size_t i = 0; i + 2 < kMostHosts; ++i) {
    hosts.push_back(At("10.1." + std::to_string(i / 256) + "." + std::to_string(i % 256) + ":1"));
  }
  hosts.push_back(At("127.0.0.2:1"));
  const auto admitted = filter->Admit(hosts);
  ASSERT_TRUE(Connects(Dial("127.0.0.2")));
  EXPECT_EQ(filter->Admit({At("127.0.0.3:1"), At("127.0.0.4:1")}).use_count(), 0);
}

TEST_F(PortFilterTest, OutlivesItsSockets) {
  const auto filter = Filter();
  auto admitted = filter->Admit({At("127.0.0.2:1")});
  filter->Close();
  admitted.reset();  // does not touch what may be another socket's descriptor by now
  EXPECT_TRUE(Connects(Dial("127.0.0.2")));
}

TEST(ListeningSocketsTest, AreThoseOfIpv4ThatListen) {
  const UniqueFd idle(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const UniqueFd listens(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::listen(listens.get(), 1), 0);
  const auto found = ListeningSockets();
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(*found, Contains(listens.get()));
  EXPECT_THAT(*found, Not(Contains(idle.get())));
}

}  // namespace
}  // namespace longhaul::transport::ucx
