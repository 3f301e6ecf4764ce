#include "transport/relay/relay.h"

#include <gmock/gmock.h>

#include "base/file.h"
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

// What all links of the suite go through.
Relay& OfTheSuite() {
  static const auto relay = *Relay::Start({.listen = "127.0.0.1:0", .secret = Secret()});
  return *relay;
}

std::string NewWay(const std::string& address) {
  return longhaul::relay::ToString(
      {.address = address,
       .ticket = longhaul::relay::MakeTicket(Secret(), RandomBytes(longhaul::relay::kNameBytes),
                                             kNoEnd)});
}

std::unique_ptr<internal::Backend> NewBackend() {
  return relay::NewBackend({}, NewWay(OfTheSuite().address()));
}

// As programs have it: nobody waits but where a link is expected, and all is sealed.
class RelayedLinkTest : public LinkTest {
 protected:
  void SetUp() override {
    listener_ = *relay::CreateTransport({.coordinator = "127.0.0.1:7070"});
    dialler_ = *relay::CreateTransport({.coordinator = "127.0.0.1:7070"});
  }
  void OpenAt(const std::vector<std::string>& ways) {
    OpenResult expected, dialled;
    listener_->Expect(Key(), kSecret, at_listener_, {.sealed = true, .wait_at = ways},
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
  EXPECT_EQ((*second)->stats().joined, 2u);
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

// What somebody else says of his relay stops nobody.
TEST_P(RelayedLinkTest, OpensThoughOneOfItsWaysIsNone) {
  OpenAt({"x#1", NewWay("no host and port"), NewWay(OfTheSuite().address())});
  Exchange("through the third");
}

TEST_P(RelayedLinkTest, WithoutAnyWayItIsNotExpected) {
  OpenResult expected;
  listener_->Expect(Key(), kSecret, at_listener_, {.sealed = true, .wait_at = {"x#1", "y#2"}},
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
