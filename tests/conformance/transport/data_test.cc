// What goes over an open link.
#include <gmock/gmock.h>

#include <array>
#include <atomic>
#include <cstring>
#include <thread>

#include "proto/wire/link_header.h"
#include "tests/conformance/transport/link_test.h"

namespace longhaul::transport {
namespace {

using ::testing::HasSubstr;

TEST_P(LinkTest, FrameOfTwoPiecesArrivesWhole) {
  Open();
  SendLedger sends;
  const std::string header = Pattern(1, 96);
  const std::string body = Pattern(2, 5000);
  const std::string empty;
  dialler_link_->Send(Lane::kBulk, FrameOf(header, body), sends.Expect());
  dialler_link_->Send(Lane::kBulk, FrameOf(header, empty), sends.Expect());
  dialler_link_->Send(Lane::kBulk, FrameOf(empty, body), sends.Expect());
  dialler_link_->Send(Lane::kBulk, FrameOf(empty, empty), sends.Expect());
  ASSERT_TRUE(at_listener_->WaitForFrames(4));
  const auto frames = at_listener_->frames();
  EXPECT_EQ(frames[0].payload, header + body);
  EXPECT_EQ(frames[1].payload, header);
  EXPECT_EQ(frames[2].payload, body);
  EXPECT_EQ(frames[3].payload, "");
  ASSERT_TRUE(sends.WaitForAll(4));
  EXPECT_EQ(sends.ok(), 4u);
}

TEST_P(LinkTest, TenThousandFramesEachWayInOrder) {
  constexpr size_t kFrames = 10'000;
  // All sizes from nothing to the largest frame, in an order that mixes small and large.
  const auto size_of = [](size_t i) { return i * 7919 * 13 % (kMaxFramePayloadBytes + 1); };
  const std::string source = Pattern(5, 2 * kMaxFramePayloadBytes);
  const auto payload_of = [&](size_t i, size_t direction) {
    return std::string_view(source).substr((i * 31 + direction * 977) % kMaxFramePayloadBytes,
                                           size_of(i));
  };
  std::atomic<size_t> wrong{0};
  std::array<size_t, 2> next{0, 0};  // each touched by one loop only
  const auto check = [&](size_t direction) {
    return [&, direction](Lane, std::span<const std::byte> payload) {
      const std::string_view expected = payload_of(next[direction]++, direction);
      if (std::string_view(reinterpret_cast<const char*>(payload.data()), payload.size()) !=
          expected) {
        ++wrong;
      }
    };
  };
  at_listener_->on_frame = check(0);
  at_dialler_->on_frame = check(1);
  at_listener_->keep_payloads = at_dialler_->keep_payloads = false;
  Open();
  SendLedger sends;
  for (size_t i = 0; i < kFrames; ++i) {
    const auto view = [&](size_t direction) {
      const auto bytes = std::as_bytes(std::span(payload_of(i, direction)));
      const size_t cut = std::min<size_t>(bytes.size(), i % 97);
      return FrameView{.header = bytes.first(cut), .body = bytes.subspan(cut)};
    };
    dialler_link_->Send(Lane::kBulk, view(0), sends.Expect());
    listener_link_->Send(Lane::kBulk, view(1), sends.Expect());
  }
  EXPECT_TRUE(at_listener_->WaitForFrames(kFrames));
  EXPECT_TRUE(at_dialler_->WaitForFrames(kFrames));
  EXPECT_EQ(wrong, 0u);
  EXPECT_TRUE(sends.WaitForAll(2 * kFrames));
  EXPECT_EQ(sends.ok(), 2 * kFrames);
}

// Whole messages, of frames that a receiver may take several at a time, and the last one shorter.
TEST_P(LinkTest, MessagesOfManyFramesArriveWhole) {
  LinkOptions options;
  options.credits = 6;
  Open(options);
  const std::string source = Pattern(9, 2 * kMaxFramePayloadBytes);
  SendLedger sends;
  std::vector<std::string_view> sent;
  for (const size_t frames : {1, 2, 3, 5, 12, 30}) {
    for (size_t i = 0; i < frames; ++i) {
      const bool last = i + 1 == frames;
      sent.push_back(std::string_view(source).substr(
          sent.size() * 97, last ? 1 + frames * 1000 : kMaxFramePayloadBytes));
      dialler_link_->Send(
          Lane::kBulk,
          {.header = {}, .body = std::as_bytes(std::span(sent.back())), .continues = !last},
          sends.Expect());
    }
  }
  ASSERT_TRUE(at_listener_->WaitForFrames(sent.size()));
  const auto frames = at_listener_->frames();
  for (size_t i = 0; i < sent.size(); ++i) EXPECT_TRUE(frames[i].payload == sent[i]) << i;
  EXPECT_TRUE(sends.WaitForAll(sent.size()));
  EXPECT_EQ(sends.ok(), sent.size());
}

TEST_P(LinkTest, OversizeFrameIsRefusedAndTheLinkLives) {
  Open();
  SendLedger sends;
  const std::string large(kMaxFramePayloadBytes + 1, 'x');
  const std::string most(kMaxFramePayloadBytes, 'y');
  dialler_link_->Send(Lane::kBulk, BodyOf(large), sends.Expect());
  dialler_link_->Send(Lane::kBulk, BodyOf(most), sends.Expect());
  ASSERT_TRUE(at_listener_->WaitForFrames(1));
  EXPECT_EQ(at_listener_->frames()[0].payload, most);
  ASSERT_TRUE(sends.WaitForAll(2));
  ASSERT_EQ(sends.failed(), 1u);
  EXPECT_EQ(sends.failures()[0].code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(Message(sends.failures()[0])), HasSubstr("65536"));
}

// The listener's loop stands still in a frame; nothing more than its credits may be under way to
// it.
TEST_P(LinkTest, CreditsBoundWhatIsUnderWay) {
  LinkOptions options;
  options.credits = 5;
  Open(options);
  constexpr size_t kFrames = 50;
  const std::string body = Pattern(3, 3000);
  const std::string too_large(kMaxFramePayloadBytes + 1, 'x');
  size_t before = 0;
  const auto expect_under_way = [&](uint32_t expected) {
    Notification entered;
    Notification go_on;
    std::atomic<bool> first{true};
    at_listener_->on_frame = [&](Lane, std::span<const std::byte>) {
      if (first.exchange(false)) {
        entered.Notify();
        EXPECT_TRUE(go_on.WaitFor(kPatience));
      }
    };
    SendLedger sends;
    for (size_t i = 0; i < kFrames; ++i) {
      dialler_link_->Send(Lane::kBulk, BodyOf(body), sends.Expect());
    }
    ASSERT_TRUE(entered.WaitFor(kPatience));
    const auto turn_of_the_loop = [&] {
      SendLedger refused;
      dialler_link_->Send(Lane::kBulk, BodyOf(too_large), refused.Expect());
      ASSERT_TRUE(refused.WaitForAll(1));
    };
    const Deadline deadline = Deadline::After(kPatience);
    while (dialler_link_->stats().frames_sent < before + expected && !deadline.Expired()) {
      turn_of_the_loop();
    }
    // The dialler sends a few frames a turn until it has no credit left.
    for (uint32_t i = 0; i < 2 * expected; ++i) turn_of_the_loop();
    EXPECT_EQ(dialler_link_->stats().frames_sent, before + expected);
    EXPECT_EQ(dialler_link_->stats().frames_waiting, kFrames);
    EXPECT_EQ(sends.ok(), 0u) << "the peer's handler is still in its first frame";
    go_on.Notify();
    before += kFrames;
    EXPECT_TRUE(at_listener_->WaitForFrames(before));
    EXPECT_TRUE(sends.WaitForAll(kFrames));
    EXPECT_GT(dialler_link_->stats().credit_wait, absl::ZeroDuration());
    at_listener_->on_frame = nullptr;
  };
  expect_under_way(5);
  listener_link_->GrowCredits(9);
  listener_link_->GrowCredits(2);
  // Credits go over the control lane, which keeps its order. Where word of older credits is still
  // being sent, these are told right after it: maybe behind the first word here, never behind the
  // second.
  SendLedger told;
  const std::string word = "now";
  for (size_t words = 1; words <= 2; ++words) {
    listener_link_->Send(Lane::kControl, BodyOf(word), told.Expect());
    ASSERT_TRUE(at_dialler_->WaitForFrames(words));
  }
  expect_under_way(9);
  EXPECT_TRUE(told.WaitForAll(2));
}

// Bulk frames wait for credits that do not come; a control frame goes by them all.
TEST_P(LinkTest, ControlOvertakesABlockedBulkLane) {
  std::mutex mutex;
  std::vector<Lane> order;
  Notification entered;
  Notification go_on;
  std::atomic<bool> first{true};
  at_listener_->on_frame = [&](Lane lane, std::span<const std::byte>) {
    if (first.exchange(false)) {
      entered.Notify();
      EXPECT_TRUE(go_on.WaitFor(kPatience));
    }
    const std::lock_guard lock(mutex);
    order.push_back(lane);
  };
  LinkOptions options;
  options.credits = 4;
  Open(options);
  constexpr size_t kBulk = 100;
  SendLedger bulk;
  SendLedger control;
  const std::string body = Pattern(3, 60'000);
  const std::string ping = "ping";
  for (size_t i = 0; i < kBulk; ++i) {
    dialler_link_->Send(Lane::kBulk, BodyOf(body), bulk.Expect());
  }
  ASSERT_TRUE(entered.WaitFor(kPatience));
  dialler_link_->Send(Lane::kControl, BodyOf(ping), control.Expect());
  go_on.Notify();
  ASSERT_TRUE(at_listener_->WaitForFrames(kBulk + 1));
  ASSERT_TRUE(control.WaitForAll(1));
  EXPECT_EQ(control.ok(), 1u);
  EXPECT_TRUE(bulk.WaitForAll(kBulk));
  const std::lock_guard lock(mutex);
  const auto at = std::ranges::find(order, Lane::kControl) - order.begin();
  EXPECT_LE(at, 20) << "the control frame came behind " << at << " bulk frames of " << kBulk;
}

TEST_P(LinkTest, SendsFromManyThreads) {
  at_listener_->keep_payloads = false;
  std::array<std::atomic<uint32_t>, 4> last{};
  std::atomic<int> disorder{0};
  at_listener_->on_frame = [&](Lane, std::span<const std::byte> payload) {
    const auto thread = static_cast<size_t>(payload[0]);
    uint32_t number;
    std::memcpy(&number, payload.data() + 4, sizeof(number));
    if (number != last[thread].exchange(number) + 1) ++disorder;
  };
  Open();
  constexpr uint32_t kPerThread = 2000;
  SendLedger sends;
  // Four threads at once; each thread's frames stay in order.
  std::vector<std::vector<std::string>> bodies(4);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t) {
    for (uint32_t i = 1; i <= kPerThread; ++i) {
      std::string body(8 + i % 300, static_cast<char>(t));
      std::memcpy(body.data() + 4, &i, sizeof(i));
      bodies[t].push_back(std::move(body));
    }
    threads.emplace_back([&, t] {
      for (const std::string& body : bodies[t]) {
        dialler_link_->Send(t % 2 == 0 ? Lane::kBulk : Lane::kControl, BodyOf(body),
                            sends.Expect());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(at_listener_->WaitForFrames(4 * kPerThread));
  EXPECT_TRUE(sends.WaitForAll(4 * kPerThread));
  EXPECT_EQ(disorder, 0);
}

TEST_P(LinkTest, StatsAddUp) {
  LinkOptions options;
  options.heartbeat_interval = absl::Milliseconds(10);
  Open(options);
  constexpr size_t kFrames = 100;
  SendLedger sends;
  const std::string body = Pattern(4, 1000);
  for (size_t i = 0; i < kFrames; ++i) {
    dialler_link_->Send(i % 4 == 0 ? Lane::kControl : Lane::kBulk, BodyOf(body), sends.Expect());
  }
  ASSERT_TRUE(at_listener_->WaitForFrames(kFrames));
  ASSERT_TRUE(sends.WaitForAll(kFrames));
  const LinkStats sent = dialler_link_->stats();
  EXPECT_EQ(sent.frames_sent, kFrames);
  EXPECT_EQ(sent.payload_bytes_sent, kFrames * body.size());
  EXPECT_EQ(sent.frames_waiting, 0u);
  EXPECT_GE(sent.link_bytes_sent, kFrames * (body.size() + wire::kLinkHeaderBytes));
  EXPECT_GE(sent.heartbeats_sent, 1u);
  EXPECT_GT(sent.longest_silence, absl::ZeroDuration());
  const LinkStats received = listener_link_->stats();
  EXPECT_EQ(received.frames_received, kFrames);
  EXPECT_EQ(received.payload_bytes_received, kFrames * body.size());
  EXPECT_EQ(received.frames_sent, 0u);
  // Heartbeats are counted with the bytes of the link, not with the caller's.
  const Deadline deadline = Deadline::After(kPatience);
  while (listener_link_->stats().heartbeats_received < 3 && !deadline.Expired()) {
    std::this_thread::yield();
  }
  EXPECT_GE(listener_link_->stats().heartbeats_received, 3u);
  EXPECT_EQ(listener_link_->stats().payload_bytes_received, kFrames * body.size());
}

}  // namespace
}  // namespace longhaul::transport
