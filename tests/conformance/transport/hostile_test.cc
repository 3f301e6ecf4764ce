// Peers that open a link by the book and then speak the wire wrongly.
#include "tests/conformance/transport/hostile_test.h"

namespace longhaul::transport {
namespace {

using ::testing::HasSubstr;
using wire::LinkHeader;
using wire::LinkKind;

INSTANTIATE_TEST_SUITE_P(Backend, HostileTest, ::testing::Values(UnderTest()),
                         [](const auto& i) { return i.param.name; });

TEST_P(HostileTest, ByTheBookIsLetIn) {
  OpenByHand();
  SendFrame(Lane::kBulk, Data(1), kPayload);
  EXPECT_TRUE(at_listener_->WaitForFrames(1));
  EXPECT_FALSE(at_listener_->closed());
}

TEST_P(HostileTest, FlippedBitInThePayload) {
  OpenByHand();
  std::vector<std::byte> header(wire::kLinkHeaderBytes);
  wire::EncodeLinkHeader(Data(1), kPayload, {},
                         std::span<std::byte, wire::kLinkHeaderBytes>(header));
  std::vector<std::byte> payload = kPayload;
  payload[50] ^= std::byte{1};
  SendRaw(Lane::kBulk, header, payload);
  ExpectEnd(absl::StatusCode::kDataLoss, "checksum");
  EXPECT_EQ(at_listener_->frames().size(), 0u);
}

TEST_P(HostileTest, FlippedBitInTheHeader) {
  OpenByHand();
  SendFrame(Lane::kBulk, Data(1), kPayload, [](auto& bytes) { bytes[17] ^= std::byte{4}; });
  ExpectEnd(absl::StatusCode::kDataLoss, "checksum");
}

TEST_P(HostileTest, FrameOfAnotherVersion) {
  OpenByHand();
  LinkHeader header = Data(1);
  header.version = wire::kLinkVersionMax + 1;
  SendFrame(Lane::kBulk, header, kPayload);
  ExpectEnd(absl::StatusCode::kUnimplemented, "version 5");
}

TEST_P(HostileTest, FrameOfAnotherLink) {
  OpenByHand();
  LinkHeader header = Data(1);
  header.link_id = 1;
  SendFrame(Lane::kBulk, header, kPayload);
  ExpectEnd(absl::StatusCode::kInvalidArgument, "link");
}

TEST_P(HostileTest, MissingFrame) {
  OpenByHand();
  SendFrame(Lane::kBulk, Data(1), kPayload);
  SendFrame(Lane::kBulk, Data(3), kPayload);
  ExpectEnd(absl::StatusCode::kDataLoss, "expected frame 2, got frame 3");
}

TEST_P(HostileTest, RepeatedFrame) {
  OpenByHand();
  SendFrame(Lane::kBulk, Data(1), kPayload);
  SendFrame(Lane::kBulk, Data(1), kPayload);
  ExpectEnd(absl::StatusCode::kDataLoss, "expected frame 2, got frame 1");
}

TEST_P(HostileTest, LaneOfTheOtherConnection) {
  OpenByHand();
  SendFrame(Lane::kControl, Data(1), kPayload);
  ExpectEnd(absl::StatusCode::kInvalidArgument, "lane");
}

TEST_P(HostileTest, PayloadTooLarge) {
  OpenByHand();
  SendFrame(Lane::kBulk, Data(1), std::vector<std::byte>(kMaxFramePayloadBytes + 1));
  ExpectEnd(absl::StatusCode::kInvalidArgument, "at most 65536");
}

TEST_P(HostileTest, AcknowledgementOfWhatWasNeverSent) {
  OpenByHand();
  LinkHeader header = Header(LinkKind::kCredit, Lane::kBulk);
  header.acknowledgement = 1000;
  SendFrame(Lane::kControl, header, {});
  ExpectEnd(absl::StatusCode::kInvalidArgument, "acknowledges frame 1000");
}

TEST_P(HostileTest, TooManyCredits) {
  OpenByHand();
  LinkHeader header = Header(LinkKind::kCredit, Lane::kBulk);
  header.credits = 1u << 23;
  SendFrame(Lane::kControl, header, {});
  ExpectEnd(absl::StatusCode::kInvalidArgument, "credits");
}

TEST_P(HostileTest, HelloOnAnOpenLink) {
  OpenByHand();
  SendHello(Lane::kBulk, Hello());
  ExpectEnd(absl::StatusCode::kInvalidArgument, "");
}

TEST_P(HostileTest, HeartbeatWithAPayload) {
  OpenByHand();
  SendFrame(Lane::kControl, Header(LinkKind::kHeartbeat, Lane::kControl), kPayload);
  ExpectEnd(absl::StatusCode::kInvalidArgument, "no payload");
}

TEST_P(HostileTest, ADiallerThatDoesNotComeBackEndsTheLink) {
  options_.peer_timeout = absl::Seconds(1);
  OpenByHand();
  thread_->RunAndWait([&] { connections_[0]->Close(); });
  ExpectEnd(absl::StatusCode::kUnavailable, "did not come back within 1.0 s");
}

// It ends both connections, and the bulk connection's end may be read first.
TEST_P(HostileTest, ADiallerThatEndsTheLinkIsHeard) {
  OpenByHand();
  thread_->RunAndWait([&] { connections_[0]->Close(); });
  ASSERT_TRUE(events_[0]->WaitForClosed());
  SendFrame(
      Lane::kControl, Header(LinkKind::kRefuse, Lane::kControl),
      internal::EncodeRefusal({.code = absl::StatusCode::kCancelled, .reason = "its run ends"}));
  const Status reason = at_listener_->WaitForClosed(options_.peer_timeout / 2);
  EXPECT_EQ(reason.code(), absl::StatusCode::kUnavailable) << reason;
  EXPECT_THAT(std::string(Message(reason)), HasSubstr("the peer ended the link: its run ends"));
}

// A peer may announce what it does not send.
TEST_P(HostileTest, FramesThatAreAnnouncedAndDoNotCome) {
  OpenByHand();
  for (uint64_t sequence = 1; sequence <= 3; ++sequence) {
    LinkHeader header = Data(sequence);
    header.following = 255;
    SendFrame(Lane::kBulk, header, kPayload);
    ASSERT_TRUE(at_listener_->WaitForFrames(sequence)) << "it waits for what does not come";
  }
  EXPECT_FALSE(at_listener_->closed());
}

TEST_P(HostileTest, ComingBackByTheBook) {
  OpenByHand();
  SendFrame(Lane::kBulk, Data(1), kPayload);
  ASSERT_TRUE(at_listener_->WaitForFrames(1));
  Connect();  // drops nothing: the listener believes its old connection healthy
  ShakeHands(/*attempt=*/1);
  ASSERT_TRUE(at_listener_->WaitForHealed());
  SendFrame(Lane::kBulk, Data(1), kPayload);  // once more, and not taken twice
  SendFrame(Lane::kBulk, Data(2), kPayload);
  EXPECT_TRUE(at_listener_->WaitForFrames(2));
  EXPECT_EQ(listener_link_->stats().frames_repeated, 1u);
  EXPECT_EQ(listener_link_->stats().reconnects, 1u);
  EXPECT_FALSE(at_listener_->closed());
}

}  // namespace
}  // namespace longhaul::transport
