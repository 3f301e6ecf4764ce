// Peers that must not get a link: one that is expected, and one that is another's.
#include "tests/conformance/transport/hostile_test.h"

namespace longhaul::transport {
namespace {

using ::testing::HasSubstr;
using wire::LinkHeader;
using wire::LinkKind;

class HostileHandshakeTest : public HostileTest {};

INSTANTIATE_TEST_SUITE_P(Backend, HostileHandshakeTest, ::testing::Values(UnderTest()),
                         [](const auto& i) { return i.param.name; });

TEST_P(HostileHandshakeTest, NoCommonVersion) {
  Expect();
  Connect();
  internal::LinkHello hello = Hello();
  hello.version_min = 7;
  hello.version_max = 9;
  SendHello(Lane::kBulk, hello);
  const auto refusal = WaitForRefusal();
  EXPECT_FALSE(refusal.retry);
  EXPECT_EQ(refusal.code, absl::StatusCode::kUnimplemented);
  EXPECT_THAT(refusal.reason, HasSubstr("7 to 9"));
  EXPECT_THAT(refusal.reason, HasSubstr("2 to 4"));
}

TEST_P(HostileHandshakeTest, HelloOfAnotherVersion) {
  Expect();
  Connect();
  LinkHeader header = Header(LinkKind::kHello, Lane::kBulk);
  header.version = 1;
  SendFrame(Lane::kBulk, header, internal::EncodeHello(Hello()));
  EXPECT_EQ(WaitForRefusal().code, absl::StatusCode::kUnimplemented);
}

TEST_P(HostileHandshakeTest, MadeUpProof) {
  Expect();
  Connect();
  internal::LinkHello hello = Hello();
  SendHello(Lane::kBulk, hello);
  ASSERT_TRUE(events_[0]->WaitFor(LinkKind::kWelcome).has_value());
  hello.stage = internal::kStageProve;
  hello.proof = Pattern(9, internal::kProofBytes);
  SendHello(Lane::kBulk, hello);
  const auto refusal = WaitForRefusal();
  EXPECT_EQ(refusal.code, absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(expected_.calls(), 0);
}

// What the listener sent as its own proof does not serve as the dialler's.
TEST_P(HostileHandshakeTest, ReflectedProof) {
  Expect();
  Connect();
  internal::LinkHello hello = Hello();
  SendHello(Lane::kBulk, hello);
  const auto message = events_[0]->WaitFor(LinkKind::kWelcome);
  ASSERT_TRUE(message.has_value());
  hello.stage = internal::kStageProve;
  hello.proof = internal::DecodeWelcome(message->payload)->proof;
  SendHello(Lane::kBulk, hello);
  EXPECT_EQ(WaitForRefusal().code, absl::StatusCode::kPermissionDenied);
}

TEST_P(HostileHandshakeTest, ProofBeforeTheChallenge) {
  Expect();
  Connect();
  internal::LinkHello hello = Hello();
  hello.stage = internal::kStageProve;
  hello.proof = Pattern(9, internal::kProofBytes);
  SendHello(Lane::kBulk, hello);
  EXPECT_EQ(WaitForRefusal().code, absl::StatusCode::kInvalidArgument);
}

TEST_P(HostileHandshakeTest, NoHelloAtAll) {
  Expect();
  Connect();
  SendRaw(Lane::kBulk, std::vector<std::byte>(64, std::byte{0x41}), kPayload);
  EXPECT_EQ(WaitForRefusal().code, absl::StatusCode::kInvalidArgument);
  SendFrame(Lane::kControl, Header(LinkKind::kData, Lane::kControl), kPayload);
  EXPECT_EQ(WaitForRefusal(Lane::kControl).code, absl::StatusCode::kInvalidArgument);
}

TEST_P(HostileHandshakeTest, HeaderOfAnotherLength) {
  if (GetParam().is_stream) GTEST_SKIP() << "it waits for the rest of the header";
  Expect();
  Connect();
  SendRaw(Lane::kBulk, std::vector<std::byte>(10, std::byte{0x41}), {});
  EXPECT_EQ(WaitForRefusal().code, absl::StatusCode::kInvalidArgument);
}

// Each of these goes for a link that is open, and must leave it as it was.
class StealingTest : public HostileTest {
 protected:
  // The thief has connections of its own and knows all but the secret.
  void SetUp() override {
    HostileTest::SetUp();
    OpenByHand();
    owner_channels_ = connections_;
    owner_events_ = events_;
    Connect();
  }
  void TearDown() override {
    connections_ = owner_channels_;
    events_ = owner_events_;
    SendFrame(Lane::kBulk, Data(1), kPayload);
    EXPECT_TRUE(at_listener_->WaitForFrames(1)) << "the owner's connection still works";
    EXPECT_EQ(listener_link_->stats().reconnects, 0u);
    EXPECT_FALSE(at_listener_->closed());
    owner_channels_ = {};
    HostileTest::TearDown();
  }
  internal::LinkHello Back(uint32_t attempt = 1) {
    internal::LinkHello hello = Hello();
    hello.attempt = attempt;
    return hello;
  }
  std::array<std::shared_ptr<internal::Connection>, 2> owner_channels_;
  std::array<std::shared_ptr<RawEvents>, 2> owner_events_;
};

INSTANTIATE_TEST_SUITE_P(Backend, StealingTest, ::testing::Values(UnderTest()),
                         [](const auto& i) { return i.param.name; });

TEST_P(StealingTest, WithoutTheSecret) {
  internal::LinkHello hello = Back();
  SendHello(Lane::kBulk, hello);
  ASSERT_TRUE(events_[0]->WaitFor(LinkKind::kWelcome).has_value());
  hello.stage = internal::kStageProve;
  hello.proof = Pattern(9, internal::kProofBytes);
  SendHello(Lane::kBulk, hello);
  EXPECT_EQ(WaitForRefusal().code, absl::StatusCode::kPermissionDenied);
}

// The proof with which the owner opened the link, said again: the listener's nonce is another one.
TEST_P(StealingTest, WithAnOldProof) {
  for (const uint32_t attempt : {0u, 1u}) {
    if (attempt == 1) Connect();
    internal::LinkHello hello = Back(attempt);
    SendHello(Lane::kBulk, hello);
    if (attempt == 0) {  // the link that it opens is not expected any more
      EXPECT_EQ(WaitForRefusal().code, absl::StatusCode::kNotFound);
      continue;
    }
    ASSERT_TRUE(events_[0]->WaitFor(LinkKind::kWelcome).has_value());
    const auto old =
        internal::DecodeWelcome(owner_events_[0]->WaitFor(LinkKind::kWelcome)->payload);
    hello.stage = internal::kStageProve;
    hello.proof = internal::Prove(kSecret, internal::Side::kDialler,
                                  {.lane = Lane::kBulk,
                                   .link_id = kLinkId,
                                   .version_min = wire::kLinkVersionMin,
                                   .version_max = wire::kLinkVersionMax,
                                   .version = old->version,
                                   .key = Key(),
                                   .dialler_nonce = hello.nonce,
                                   .listener_nonce = old->nonce});
    SendHello(Lane::kBulk, hello);
    EXPECT_EQ(WaitForRefusal().code, absl::StatusCode::kPermissionDenied);
  }
}

TEST_P(StealingTest, ByAnotherId) {
  LinkHeader header = Header(LinkKind::kHello, Lane::kBulk);
  header.link_id = kLinkId + 1;
  SendFrame(Lane::kBulk, header, internal::EncodeHello(Back()));
  const auto refusal = WaitForRefusal();
  EXPECT_FALSE(refusal.retry);
  EXPECT_EQ(refusal.code, absl::StatusCode::kUnavailable);
  EXPECT_THAT(refusal.reason, HasSubstr("no longer has the link"));
}

TEST_P(StealingTest, WithHellosAlone) {
  for (const Lane lane : {Lane::kBulk, Lane::kControl}) SendHello(lane, Back(7));
  for (const auto& events : events_) {
    EXPECT_TRUE(events->WaitFor(LinkKind::kWelcome).has_value());
  }
}

}  // namespace
}  // namespace longhaul::transport
