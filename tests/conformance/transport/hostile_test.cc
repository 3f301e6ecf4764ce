// Peers that speak the wire wrongly. They dial through the backend's bare seam.
#include <gmock/gmock.h>

#include <optional>

#include "base/event_loop.h"
#include "proto/wire/link_header.h"
#include "tests/conformance/transport/link_test.h"
#include "transport/p2p/core/handshake.h"

namespace longhaul::transport {
namespace {

using testing::HasSubstr;
using wire::LinkHeader;
using wire::LinkKind;

// A channel's events, kept for the test's thread.
class RawEvents : public internal::ChannelEvents {
 public:
  struct Message {
    Status error;  // of decoding the header
    LinkHeader header;
    std::vector<std::byte> payload;
  };
  void OnMessage(std::span<const std::byte> header, std::span<const std::byte> payload) override {
    const StatusOr<LinkHeader> decoded = wire::DecodeLinkHeader(header, payload);
    const std::lock_guard lock(mutex_);
    messages_.push_back({decoded.status(),
                         decoded.ok() ? *decoded : LinkHeader{},
                         {payload.begin(), payload.end()}});
    changed_.notify_all();
  }
  void OnClosed(const Status&) override {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }
  // The `count`th of that kind.
  std::optional<Message> WaitFor(LinkKind kind, int count = 1) {
    std::unique_lock lock(mutex_);
    const auto find = [&] {
      int seen = 0;
      return std::ranges::find_if(messages_, [&](const Message& m) {
        return m.error.ok() && m.header.kind == kind && ++seen == count;
      });
    };
    if (!changed_.wait_for(lock, absl::ToChronoNanoseconds(kPatience),
                           [&] { return find() != messages_.end(); })) {
      return std::nullopt;
    }
    return *find();
  }
  bool WaitForClosed() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, absl::ToChronoNanoseconds(kPatience), [&] { return closed_; });
  }

 private:
  std::mutex mutex_;  // all below
  std::condition_variable changed_;
  std::vector<Message> messages_;
  bool closed_ = false;
};

class HostileTest : public LinkTest {
 protected:
  void SetUp() override {
    listener_ = NewTransport();
    ASSERT_TRUE(listener_);
    thread_ = *EventLoopThread::Start();
    backend_ = GetParam().create_backend();
    thread_->RunAndWait([&] {
      const auto address = backend_->Start(
          thread_->loop(), [](const std::shared_ptr<internal::Channel>& c) { c->Close(); });
      ASSERT_TRUE(address.ok()) << address.status();
    });
  }

  void TearDown() override {
    Notification gone;
    thread_->RunAndWait([&] { backend_->Shutdown([&gone] { gone.Notify(); }); });
    EXPECT_TRUE(gone.WaitFor(kPatience));
    thread_->RunAndWait([&] {
      channels_ = {};
      backend_.reset();
    });
  }

  void Connect() {
    thread_->RunAndWait([&] {
      for (size_t i = 0; i < 2; ++i) {
        auto channel = backend_->Connect(listener_->address());
        ASSERT_TRUE(channel.ok()) << channel.status();
        channels_[i] = *channel;
        events_[i] = std::make_shared<RawEvents>();
        channels_[i]->SetEvents(events_[i]);
      }
    });
  }

  // Sends exactly these bytes.
  void SendRaw(Lane lane, std::vector<std::byte> header, std::vector<std::byte> payload) {
    thread_->RunAndWait([&] {
      auto bytes = std::make_shared<std::pair<std::vector<std::byte>, std::vector<std::byte>>>(
          std::move(header), std::move(payload));
      channels_[static_cast<size_t>(lane)]->Send(
          bytes->first, FrameView{.header = {}, .body = bytes->second}, [bytes](const Status&) {});
    });
  }

  void SendFrame(Lane lane, LinkHeader header, const std::vector<std::byte>& payload,
                 const std::function<void(std::vector<std::byte>&)>& damage = nullptr) {
    std::vector<std::byte> bytes(wire::kLinkHeaderBytes);
    wire::EncodeLinkHeader(header, payload, {},
                           std::span<std::byte, wire::kLinkHeaderBytes>(bytes));
    if (damage) damage(bytes);
    SendRaw(lane, bytes, payload);
  }

  internal::LinkHello Hello() {
    return {.stage = internal::kStageIntroduce,
            .version_min = wire::kLinkVersionMin,
            .version_max = wire::kLinkVersionMax,
            .key = Key(),
            .nonce = Pattern(1, internal::kNonceBytes)};
  }

  LinkHeader Header(LinkKind kind, Lane lane) {
    return {.kind = kind, .lane = static_cast<uint8_t>(lane), .credits = 8, .link_id = kLinkId};
  }

  void SendHello(Lane lane, const internal::LinkHello& hello) {
    SendFrame(lane, Header(LinkKind::kHello, lane), internal::EncodeHello(hello));
  }

  // Goes through the handshake by the book on both lanes, and says that this end is open.
  void OpenByHand() {
    Expect();
    Connect();
    ShakeHands(/*attempt=*/0);
    const auto link = expected_.Wait();
    ASSERT_TRUE(link.ok()) << link.status();
    listener_link_ = *link;
  }

  // By a dialler that says to have `received` of each lane.
  void ShakeHands(uint32_t attempt, uint64_t received = 0) {
    for (const Lane lane : {Lane::kBulk, Lane::kControl}) {
      auto& events = *events_[static_cast<size_t>(lane)];
      internal::LinkHello hello = Hello();
      hello.attempt = attempt;
      hello.received = received;
      SendHello(lane, hello);
      const auto message = events.WaitFor(LinkKind::kWelcome);
      ASSERT_TRUE(message.has_value());
      const auto welcome = internal::DecodeWelcome(message->payload);
      ASSERT_TRUE(welcome.ok()) << welcome.status();
      hello.stage = internal::kStageProve;
      hello.proof = internal::Prove(kSecret, internal::Side::kDialler,
                                    {.lane = lane,
                                     .link_id = kLinkId,
                                     .version_min = wire::kLinkVersionMin,
                                     .version_max = wire::kLinkVersionMax,
                                     .version = welcome->version,
                                     .key = Key(),
                                     .attempt = attempt,
                                     .dialler_received = received,
                                     .listener_received = welcome->received,
                                     .dialler_nonce = hello.nonce,
                                     .listener_nonce = welcome->nonce});
      SendHello(lane, hello);
    }
    // A lane may overtake the other, and nothing may come before both are open.
    for (const auto& events : events_) {
      ASSERT_TRUE(events->WaitFor(LinkKind::kWelcome, 2).has_value());
    }
    SendFrame(Lane::kControl, Header(LinkKind::kHeartbeat, Lane::kControl), {});
  }

  void Expect() {
    listener_->Expect(Key(), kSecret, at_listener_, options_, Deadline::After(kPatience),
                      expected_.Done());
  }

  internal::LinkRefusal WaitForRefusal(Lane lane = Lane::kBulk) {
    const auto message = events_[static_cast<size_t>(lane)]->WaitFor(LinkKind::kRefuse);
    if (!message) return {.reason = "no refusal came"};
    const auto refusal = internal::DecodeRefusal(message->payload);
    EXPECT_TRUE(refusal.ok()) << refusal.status();
    return refusal.ok() ? *refusal : internal::LinkRefusal{};
  }

  void ExpectEnd(absl::StatusCode code, const std::string& words) {
    const Status reason = at_listener_->WaitForClosed();
    EXPECT_EQ(reason.code(), code) << reason;
    EXPECT_THAT(std::string(Message(reason)), HasSubstr(words));
    EXPECT_TRUE(events_[0]->WaitForClosed());
    EXPECT_TRUE(events_[1]->WaitForClosed());
  }

  LinkHeader Data(uint64_t sequence) {
    LinkHeader header = Header(LinkKind::kData, Lane::kBulk);
    header.sequence = sequence;
    return header;
  }

  static constexpr uint64_t kLinkId = 0x1122334455667788;
  static inline const std::vector<std::byte> kPayload{100, std::byte{7}};

  std::shared_ptr<EventLoopThread> thread_;
  std::unique_ptr<internal::Backend> backend_;
  std::array<std::shared_ptr<internal::Channel>, 2> channels_;
  std::array<std::shared_ptr<RawEvents>, 2> events_;
  OpenResult expected_;
  LinkOptions options_;
};

INSTANTIATE_TEST_SUITE_P(Backend, HostileTest, testing::Values(UnderTest()),
                         [](const auto& i) { return i.param.name; });

TEST_P(HostileTest, ByTheBookIsLetIn) {
  OpenByHand();
  SendFrame(Lane::kBulk, Data(1), kPayload);
  EXPECT_TRUE(at_listener_->WaitForFrames(1));
  EXPECT_FALSE(at_listener_->closed());
}

TEST_P(HostileTest, NoCommonVersion) {
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
  EXPECT_THAT(refusal.reason, HasSubstr("2 to 2"));
}

TEST_P(HostileTest, HelloOfAnotherVersion) {
  Expect();
  Connect();
  LinkHeader header = Header(LinkKind::kHello, Lane::kBulk);
  header.version = 1;
  SendFrame(Lane::kBulk, header, internal::EncodeHello(Hello()));
  EXPECT_EQ(WaitForRefusal().code, absl::StatusCode::kUnimplemented);
}

TEST_P(HostileTest, MadeUpProof) {
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
TEST_P(HostileTest, ReflectedProof) {
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

TEST_P(HostileTest, ProofBeforeTheChallenge) {
  Expect();
  Connect();
  internal::LinkHello hello = Hello();
  hello.stage = internal::kStageProve;
  hello.proof = Pattern(9, internal::kProofBytes);
  SendHello(Lane::kBulk, hello);
  EXPECT_EQ(WaitForRefusal().code, absl::StatusCode::kInvalidArgument);
}

TEST_P(HostileTest, NoHelloAtAll) {
  Expect();
  Connect();
  SendRaw(Lane::kBulk, std::vector<std::byte>(64, std::byte{0x41}), kPayload);
  EXPECT_EQ(WaitForRefusal().code, absl::StatusCode::kInvalidArgument);
  SendFrame(Lane::kControl, Header(LinkKind::kData, Lane::kControl), kPayload);
  EXPECT_EQ(WaitForRefusal(Lane::kControl).code, absl::StatusCode::kInvalidArgument);
}

TEST_P(HostileTest, HeaderOfAnotherLength) {
  Expect();
  Connect();
  SendRaw(Lane::kBulk, std::vector<std::byte>(10, std::byte{0x41}), {});
  EXPECT_EQ(WaitForRefusal().code, absl::StatusCode::kInvalidArgument);
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
  header.version = 3;
  SendFrame(Lane::kBulk, header, kPayload);
  ExpectEnd(absl::StatusCode::kUnimplemented, "version 3");
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
  header.credits = 1u << 31;
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
  thread_->RunAndWait([&] { channels_[0]->Close(); });
  ExpectEnd(absl::StatusCode::kUnavailable, "did not come back within 1.0 s");
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

// Each of these goes for a link that is open, and must leave it as it was.
class StealingTest : public HostileTest {
 protected:
  // The thief has connections of its own and knows all but the secret.
  void SetUp() override {
    HostileTest::SetUp();
    OpenByHand();
    owner_channels_ = channels_;
    owner_events_ = events_;
    Connect();
  }
  void TearDown() override {
    channels_ = owner_channels_;
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
  std::array<std::shared_ptr<internal::Channel>, 2> owner_channels_;
  std::array<std::shared_ptr<RawEvents>, 2> owner_events_;
};

INSTANTIATE_TEST_SUITE_P(Backend, StealingTest, testing::Values(UnderTest()),
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
