#include "transport/p2p/stream/resolve.h"

#include <gmock/gmock.h>
#include <netinet/in.h>

#include <atomic>
#include <latch>
#include <memory>
#include <string>

#include "base/event_loop.h"

namespace longhaul::transport::stream {
namespace {

StatusOr<SocketAddress> AddressOfPort(uint16_t port) {
  SocketAddress address;
  auto& v4 = reinterpret_cast<sockaddr_in&>(address.storage);
  v4.sin_family = AF_INET;
  v4.sin_port = htons(port);
  address.bytes = sizeof(v4);
  return address;
}

TEST(ResolveTest, OfANameWithBothKindsItTakesIpv4) {
  addrinfo last{.ai_family = AF_INET}, middle{.ai_family = AF_INET, .ai_next = &last},
      first{.ai_family = AF_INET6, .ai_next = &middle};
  EXPECT_EQ(Preferred(&first), &middle);
  first.ai_next = nullptr;
  EXPECT_EQ(Preferred(&first), &first);
  const auto found = LookUp({"localhost", 7071});
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(reinterpret_cast<const sockaddr_in&>(found->storage).sin_port, htons(7071));
}

TEST(ResolveTest, OneThreadLooksANameUpForAllWhoAsk) {
  const auto thread = *EventLoopThread::Start();
  std::atomic<int> looked_up = 0;
  std::latch asked(1), done(3), again(1);
  const auto resolver = std::make_shared<Resolver>(thread->loop(), [&](const HostPort& address) {
    asked.wait();
    ++looked_up;
    return AddressOfPort(address.port);
  });
  thread->RunAndWait([&] {
    for (int i = 0; i < 3; ++i) {
      resolver->Resolve({"relay.example", 7071}, [&](const StatusOr<SocketAddress>& found) {
        EXPECT_TRUE(found.ok());
        done.count_down();
      });
    }
  });
  asked.count_down();
  done.wait();
  EXPECT_EQ(looked_up, 1);
  // Its address may have changed since.
  thread->RunAndWait([&] {
    resolver->Resolve({"relay.example", 7071},
                      [&](const StatusOr<SocketAddress>&) { again.count_down(); });
  });
  again.wait();
  EXPECT_EQ(looked_up, 2);
}

TEST(ResolveTest, NumbersNeedNoLookUp) {
  const auto thread = *EventLoopThread::Start();
  std::latch done(1);
  const auto resolver = std::make_shared<Resolver>(
      thread->loop(),
      [](const HostPort&) -> StatusOr<SocketAddress> { return absl::InternalError("looked up"); });
  thread->RunAndWait([&] {
    resolver->Resolve({"2001:db8::7", 7071}, [&](const StatusOr<SocketAddress>& found) {
      EXPECT_TRUE(found.ok() && found->storage.ss_family == AF_INET6);
      done.count_down();
    });
  });
  done.wait();
}

}  // namespace
}  // namespace longhaul::transport::stream
