#include "transport/relay/relay.h"

#include <gmock/gmock.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/event_loop.h"
#include "base/file.h"
#include "base/unique_fd.h"
#include "proto/rpc/listener.h"
#include "tests/conformance/transport/link_test.h"
#include "transport/p2p/core/transport_core.h"
#include "transport/p2p/relay/backend.h"
#include "transport/relay/ticket.h"

namespace longhaul::transport {
namespace {

using longhaul::relay::Relay;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint64_t kNoEnd = uint64_t{1} << 40;

const std::string& Secret() {
  static const std::string secret(longhaul::relay::kSecretBytes, 's');
  return secret;
}

// What all links of the suite go through, many of them under one name.
Relay& OfTheSuite() {
  static const auto relay =
      *Relay::Start({.listen = "127.0.0.1:0", .secret = Secret(), .most_of_a_name = 1024});
  return *relay;
}

std::string NewWay(const std::string& address) {
  return longhaul::relay::ToString(
      {.address = address,
       .ticket = longhaul::relay::MakeTicket(Secret(), RandomBytes(longhaul::relay::kNameBytes),
                                             kNoEnd)});
}

// A relay that says what it likes: nothing at all, or that somebody has come.
class FakeRelay {
 public:
  explicit FakeRelay(bool greets) : greets_(greets), thread_(*EventLoopThread::Start()) {
    thread_->RunAndWait([this] {
      listener_ = *Listener::Create(thread_->loop(), "127.0.0.1:0", [this](int fd) { Take(fd); });
    });
  }
  ~FakeRelay() {
    thread_->RunAndWait([this] {
      for (const auto& fd : fds_) thread_->loop()->Unwatch(fd->get());
      listener_.reset();
    });
  }
  const std::string& address() const { return listener_->address(); }
  bool WaitForTaken(size_t count, absl::Duration limit = kPatience) const {
    const Deadline deadline = Deadline::After(limit);
    while (taken_ < count && deadline.Remaining() > absl::ZeroDuration()) std::this_thread::yield();
    return taken_ >= count;
  }

 private:
  void Take(int fd) {
    ++taken_;
    listener_->Admit(PeerTextOf(fd));
    fds_.push_back(std::make_unique<UniqueFd>(fd));
    if (!greets_) return;
    Say(fd, longhaul::relay::Greeting(RandomBytes(longhaul::relay::kNonceBytes)));
    (void)thread_->loop()->Watch(fd, EPOLLIN, [this, fd](uint32_t) {
      thread_->loop()->Unwatch(fd);
      Say(fd, "J");
    });
  }
  static void Say(int fd, std::string_view words) {
    EXPECT_EQ(::send(fd, words.data(), words.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(words.size()));
  }

  const bool greets_;
  const std::shared_ptr<EventLoopThread> thread_;
  std::unique_ptr<Listener> listener_;
  std::vector<std::unique_ptr<UniqueFd>> fds_;
  std::atomic<size_t> taken_ = 0;
};

std::unique_ptr<internal::Backend> NewBackend() {
  return relay::NewBackend({}, NewWay(OfTheSuite().address()));
}

// As programs have it: nobody waits but where a link is expected, and all is sealed.
class RelayedLinkTest : public LinkTest {
 protected:
  void SetUp() override {
    listener_ = *relay::CreateTransport({.coordinator = [] { return "127.0.0.1:7070"; }});
    dialler_ = *relay::CreateTransport({.coordinator = [] { return "127.0.0.1:7070"; }});
  }
  void OpenAt(const std::vector<std::string>& ways) {
    OpenResult expected, dialled;
    listener_->Expect(Key(), kSecret, at_listener_, {.sealed = true, .peer_at = ways},
                      Deadline::After(kPatience), expected.Done());
    dialler_->Dial(ways, Key(), kSecret, at_dialler_, {.sealed = true}, Deadline::After(kPatience),
                   dialled.Done());
    const auto here = expected.Wait(), there = dialled.Wait();
    ASSERT_TRUE(here.ok()) << here.status();
    ASSERT_TRUE(there.ok()) << there.status();
    listener_link_ = *here;
    dialler_link_ = *there;
  }
  void Exchange(const std::string& text) {
    SendLedger ledger;
    const size_t before = at_listener_->frames().size();
    dialler_link_->Send(Lane::kBulk, BodyOf(text), ledger.Expect());
    ASSERT_TRUE(at_listener_->WaitForFrames(before + 1));
    EXPECT_EQ(at_listener_->frames().back().payload, text);
    ASSERT_TRUE(ledger.WaitForAll(1));
  }
};

INSTANTIATE_TEST_SUITE_P(Relay, RelayedLinkTest, ::testing::Values(SealedUnderTest()));

TEST_P(RelayedLinkTest, HealsThroughAnotherRelayWhereOneEnds) {
  auto first = Relay::Start({.listen = "127.0.0.1:0", .secret = Secret()});
  ASSERT_TRUE(first.ok());
  const auto second = Relay::Start({.listen = "127.0.0.1:0", .secret = Secret()});
  ASSERT_TRUE(second.ok());
  OpenAt({NewWay((*first)->address()), NewWay((*second)->address())});
  Exchange("through the first");
  EXPECT_GT((*first)->stats().bytes, 0u);
  EXPECT_EQ((*second)->stats().joined, 0u);
  first->reset();
  ASSERT_TRUE(at_dialler_->WaitForHealed());
  Exchange("through the second");
  EXPECT_GE((*second)->stats().joined, 2u);
}

TEST_P(RelayedLinkTest, ARelayThatComesBackIsTakenAgain) {
  auto relay = Relay::Start({.listen = "127.0.0.1:0", .secret = Secret()});
  ASSERT_TRUE(relay.ok());
  const std::string address = (*relay)->address();
  OpenAt({NewWay(address)});
  relay->reset();
  ASSERT_TRUE(at_dialler_->WaitForLost());
  relay = Relay::Start({.listen = address, .secret = Secret()});
  ASSERT_TRUE(relay.ok()) << relay.status();
  ASSERT_TRUE(at_dialler_->WaitForHealed());
  Exchange("again");
}

// Else its guests take all the room that there is for those who have not proved themselves.
TEST_P(RelayedLinkTest, ARelayThatJoinsWithoutEndKeepsNobodyOut) {
  const FakeRelay hostile(/*greets=*/true);
  const std::string good = NewWay(OfTheSuite().address());
  OpenResult expected, dialled;
  listener_->Expect(Key(), kSecret, at_listener_,
                    {.sealed = true, .peer_at = {NewWay(hostile.address()), good}},
                    Deadline::After(kPatience), expected.Done());
  ASSERT_TRUE(hostile.WaitForTaken(6));  // the first pauses are short
  ASSERT_FALSE(hostile.WaitForTaken(100, absl::Seconds(1)));
  dialler_->Dial({good}, Key(), kSecret, at_dialler_, {.sealed = true}, Deadline::After(kPatience),
                 dialled.Done());
  const auto there = dialled.Wait();
  ASSERT_TRUE(there.ok()) << there.status();
  EXPECT_TRUE(expected.Wait().ok());
}

// One that takes connections and is frozen, or none at all.
TEST_P(RelayedLinkTest, WaitsAnewAtARelayThatSaysNothing) {
  const FakeRelay silent(/*greets=*/false);
  OpenResult expected;
  listener_->Expect(Key(), kSecret, at_listener_,
                    {.sealed = true, .peer_at = {NewWay(silent.address())}},
                    Deadline::After(kPatience), expected.Done());
  EXPECT_TRUE(silent.WaitForTaken(4));
  listener_->Cancel(Key());
}

// What somebody else says of his relay stops nobody.
TEST_P(RelayedLinkTest, OpensThoughOneOfItsWaysIsNone) {
  OpenAt({"x#1", NewWay("no host and port"), NewWay(OfTheSuite().address())});
  Exchange("through the third");
}

TEST_P(RelayedLinkTest, WithoutAnyWayItIsNotExpected) {
  OpenResult expected;
  listener_->Expect(Key(), kSecret, at_listener_, {.sealed = true, .peer_at = {"x#1", "y#2"}},
                    Deadline::After(kPatience), expected.Done());
  const Status status = expected.Wait().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
}

TEST_P(RelayedLinkTest, CarriesNoPlainLinks) {
  OpenResult dialled;
  dialler_->Dial({NewWay(OfTheSuite().address())}, Key(), kSecret, at_dialler_, {},
                 Deadline::After(kPatience), dialled.Done());
  EXPECT_THAT(std::string(Message(dialled.Wait().status())), HasSubstr("encrypted links alone"));
}

TEST_P(RelayedLinkTest, ErrorsShowNoTicket) {
  const std::string way = NewWay(OfTheSuite().address());
  OpenResult dialled;
  dialler_->Dial({way}, Key(), kSecret, at_dialler_, {.sealed = true},
                 Deadline::After(absl::Seconds(3)), dialled.Done());
  const std::string message(Message(dialled.Wait().status()));
  EXPECT_THAT(message, HasSubstr(OfTheSuite().address()));
  EXPECT_THAT(message, HasSubstr("the peer does not wait at the relay"));
  EXPECT_THAT(message, Not(HasSubstr(way.substr(way.find('#') + 1, 16))));
}

TEST_P(RelayedLinkTest, AddressesWithoutAHostAreTheCoordinators) {
  const std::string& address = OfTheSuite().address();
  OpenAt({NewWay(address.substr(address.rfind(':')))});
  Exchange("at the coordinator's host");
}

}  // namespace

BackendUnderTest UnderTest() {
  return {
      .name = "relay",
      .create = [] { return internal::NewTransport(NewBackend()); },
      .create_backend = [] { return NewBackend(); },
      .nobody = NewWay("127.0.0.1:1"),
      .is_stream = true,
  };
}

}  // namespace longhaul::transport
