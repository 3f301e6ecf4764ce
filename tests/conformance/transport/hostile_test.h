// Peers that speak the wire as they like. They dial through the backend's bare seam.
#pragma once

#include <gmock/gmock.h>

#include <array>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/event_loop.h"
#include "proto/wire/link_header.h"
#include "tests/conformance/transport/link_test.h"
#include "transport/p2p/core/handshake.h"

namespace longhaul::transport {

// A channel's events, kept for the test's thread.
class RawEvents : public internal::ConnectionEvents {
 public:
  struct Message {
    Status error;  // of decoding the header
    wire::LinkHeader header;
    std::vector<std::byte> payload;
  };
  void OnMessage(std::span<const std::byte> header, std::span<const std::byte> payload) override {
    const StatusOr<wire::LinkHeader> decoded = wire::DecodeLinkHeader(header, payload);
    const std::lock_guard lock(mutex_);
    messages_.push_back({decoded.status(),
                         decoded.ok() ? *decoded : wire::LinkHeader{},
                         {payload.begin(), payload.end()}});
    changed_.notify_all();
  }
  void OnClosed(const Status&) override {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }
  // The `count`th of that kind.
  std::optional<Message> WaitFor(wire::LinkKind kind, int count = 1) {
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
          thread_->loop(), [](const std::shared_ptr<internal::Connection>& c) { c->Close(); });
      ASSERT_TRUE(address.ok()) << address.status();
    });
  }

  void TearDown() override {
    Notification gone;
    thread_->RunAndWait([&] { backend_->Shutdown([&gone] { gone.Notify(); }); });
    EXPECT_TRUE(gone.WaitFor(kPatience));
    thread_->RunAndWait([&] {
      connections_ = {};
      backend_.reset();
    });
  }

  void Connect() {
    thread_->RunAndWait([&] {
      for (size_t i = 0; i < 2; ++i) {
        auto channel = backend_->Connect(listener_->address());
        ASSERT_TRUE(channel.ok()) << channel.status();
        connections_[i] = *channel;
        events_[i] = std::make_shared<RawEvents>();
        connections_[i]->SetEvents(events_[i]);
      }
    });
  }

  // Sends exactly these bytes.
  void SendRaw(Lane lane, std::vector<std::byte> header, std::vector<std::byte> payload) {
    thread_->RunAndWait([&] {
      auto bytes = std::make_shared<std::pair<std::vector<std::byte>, std::vector<std::byte>>>(
          std::move(header), std::move(payload));
      connections_[static_cast<size_t>(lane)]->Send(
          bytes->first, FrameView{.header = {}, .body = bytes->second}, [bytes](const Status&) {});
    });
  }

  void SendFrame(Lane lane, wire::LinkHeader header, const std::vector<std::byte>& payload,
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

  wire::LinkHeader Header(wire::LinkKind kind, Lane lane) {
    return {.kind = kind, .lane = static_cast<uint8_t>(lane), .credits = 8, .link_id = kLinkId};
  }

  void SendHello(Lane lane, const internal::LinkHello& hello) {
    SendFrame(lane, Header(wire::LinkKind::kHello, lane), internal::EncodeHello(hello));
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
      const auto message = events.WaitFor(wire::LinkKind::kWelcome);
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
      ASSERT_TRUE(events->WaitFor(wire::LinkKind::kWelcome, 2).has_value());
    }
    SendFrame(Lane::kControl, Header(wire::LinkKind::kHeartbeat, Lane::kControl), {});
  }

  void Expect() {
    listener_->Expect(Key(), kSecret, at_listener_, options_, Deadline::After(kPatience),
                      expected_.Done());
  }

  internal::LinkRefusal WaitForRefusal(Lane lane = Lane::kBulk) {
    const auto message = events_[static_cast<size_t>(lane)]->WaitFor(wire::LinkKind::kRefuse);
    if (!message) return {.reason = "no refusal came"};
    const auto refusal = internal::DecodeRefusal(message->payload);
    EXPECT_TRUE(refusal.ok()) << refusal.status();
    return refusal.ok() ? *refusal : internal::LinkRefusal{};
  }

  void ExpectEnd(absl::StatusCode code, const std::string& words) {
    const Status reason = at_listener_->WaitForClosed();
    EXPECT_EQ(reason.code(), code) << reason;
    EXPECT_THAT(std::string(Message(reason)), ::testing::HasSubstr(words));
    EXPECT_TRUE(events_[0]->WaitForClosed());
    EXPECT_TRUE(events_[1]->WaitForClosed());
  }

  wire::LinkHeader Data(uint64_t sequence) {
    wire::LinkHeader header = Header(wire::LinkKind::kData, Lane::kBulk);
    header.sequence = sequence;
    return header;
  }

  static constexpr uint64_t kLinkId = 0x1122334455667788;
  static inline const std::vector<std::byte> kPayload{100, std::byte{7}};

  std::shared_ptr<EventLoopThread> thread_;
  std::unique_ptr<internal::Backend> backend_;
  std::array<std::shared_ptr<internal::Connection>, 2> connections_;
  std::array<std::shared_ptr<RawEvents>, 2> events_;
  OpenResult expected_;
  LinkOptions options_;
};

}  // namespace longhaul::transport
