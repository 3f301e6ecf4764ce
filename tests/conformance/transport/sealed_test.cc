// Links that are sealed: what somebody on the way sees of them, and what he can do.
#include <gmock/gmock.h>

#include <algorithm>
#include <utility>

#include "base/event_loop.h"
#include "base/notification.h"
#include "proto/wire/link_header.h"
#include "tests/conformance/transport/link_test.h"
#include "transport/p2p/core/transport_core.h"

namespace longhaul::transport {
namespace {

using internal::Backend;
using internal::Connection;
using ::testing::HasSubstr;

// A message on its way: a link header and what follows.
struct WireMessage {
  std::vector<std::byte> header, payload;
  bool is_handshake() const {
    const auto kind = static_cast<wire::LinkKind>(header[6]);
    return kind == wire::LinkKind::kHello || kind == wire::LinkKind::kWelcome ||
           kind == wire::LinkKind::kRefuse;
  }
  bool is_bulk_data() const {
    return static_cast<wire::LinkKind>(header[6]) == wire::LinkKind::kData &&
           static_cast<Lane>(header[7]) == Lane::kBulk;
  }
};

// Who sits on the dialler's line, and what he has seen of what it sends. Used on its loop.
struct Wiretap {
  // What goes on instead of a message of an open link. Empty: all as it is.
  std::function<std::vector<WireMessage>(const WireMessage&)> act;
  std::string seen;
  size_t acted = 0;
  // Bulk frames of callers go on, but the link is not told so: their `done`s stay here.
  bool holds = false;
  std::vector<std::function<void()>> held;
  std::shared_ptr<EventLoop> loop;
};

class TappedConnection : public Connection {
 public:
  TappedConnection(std::shared_ptr<Connection> inner, std::shared_ptr<EventLoop> loop,
                   std::shared_ptr<Wiretap> tap)
      : inner_(std::move(inner)), loop_(std::move(loop)), tap_(std::move(tap)) {}

  void SetEvents(std::shared_ptr<internal::ConnectionEvents> events) override {
    inner_->SetEvents(std::move(events));
  }
  void Send(std::span<const std::byte> header, const FrameView& payload, SendDone done) override {
    WireMessage message;
    message.header.assign(header.begin(), header.end());
    message.payload.assign(payload.header.begin(), payload.header.end());
    message.payload.insert(message.payload.end(), payload.body.begin(), payload.body.end());
    tap_->seen.append(reinterpret_cast<const char*>(message.payload.data()),
                      message.payload.size());
    const bool is_held = tap_->holds && message.is_bulk_data();
    std::vector<WireMessage> passed_on;
    if (tap_->act && !message.is_handshake()) {
      passed_on = tap_->act(message);
    } else {
      passed_on.push_back(std::move(message));
    }
    for (WireMessage& one : passed_on) {
      const auto kept = std::make_shared<WireMessage>(std::move(one));
      inner_->Send(kept->header, {.header = {}, .body = kept->payload}, [kept](const Status&) {});
    }
    const auto tell = [done = std::move(done)] { done(absl::OkStatus()); };
    if (is_held) {
      tap_->held.push_back(tell);
    } else {
      loop_->Post(tell);
    }
  }
  void Close() override { inner_->Close(); }
  std::string Describe() const override { return inner_->Describe(); }

 private:
  const std::shared_ptr<Connection> inner_;
  const std::shared_ptr<EventLoop> loop_;
  const std::shared_ptr<Wiretap> tap_;
};

class TappedBackend : public Backend {
 public:
  TappedBackend(std::unique_ptr<Backend> inner, std::shared_ptr<Wiretap> tap)
      : inner_(std::move(inner)), tap_(std::move(tap)) {}
  std::string name() const override { return inner_->name(); }
  StatusOr<std::string> Start(const std::shared_ptr<EventLoop>& loop, Accept accept) override {
    loop_ = loop;
    tap_->loop = loop;
    return inner_->Start(loop, std::move(accept));
  }
  StatusOr<std::shared_ptr<Connection>> Connect(const std::string& address) override {
    LH_ASSIGN_OR_RETURN(std::shared_ptr<Connection> inner, inner_->Connect(address));
    return std::make_shared<TappedConnection>(std::move(inner), loop_, tap_);
  }
  std::shared_ptr<void> AdmitPeers(const std::vector<std::string>& addresses) override {
    return inner_->AdmitPeers(addresses);
  }
  void Shutdown(std::function<void()> done) override { inner_->Shutdown(std::move(done)); }

 private:
  const std::unique_ptr<Backend> inner_;
  const std::shared_ptr<Wiretap> tap_;
  std::shared_ptr<EventLoop> loop_;
};

class SealedTest : public LinkTest {
 protected:
  void SetUp() override {
    LinkTest::SetUp();
    auto transport =
        internal::NewTransport(std::make_unique<TappedBackend>(GetParam().create_backend(), tap_));
    ASSERT_TRUE(transport.ok()) << transport.status();
    dialler_ = *std::move(transport);
  }
  void TearDown() override {
    dialler_link_.reset();
    dialler_.reset();  // its loop no longer runs: what the tap saw may be read
    tap_->loop.reset();
  }
  // Frames that differ, and arrive as they were sent.
  void SendAndCompare(size_t count) {
    for (size_t i = 0; i < count; ++i) texts_.push_back(Pattern(i, 3000 + i));
    SendLedger ledger;
    for (const std::string& text : texts_) {
      dialler_link_->Send(Lane::kBulk, BodyOf(text), ledger.Expect());
    }
    ASSERT_TRUE(at_listener_->WaitForFramesOn(Lane::kBulk, count));
    ASSERT_TRUE(ledger.WaitForAll(count));
    EXPECT_EQ(ledger.failed(), 0u);
    const auto frames = at_listener_->frames();
    ASSERT_EQ(frames.size(), count);
    for (size_t i = 0; i < count; ++i) EXPECT_EQ(frames[i].payload, texts_[i]) << "frame " << i;
  }

  const std::shared_ptr<Wiretap> tap_ = std::make_shared<Wiretap>();
  std::vector<std::string> texts_;
};

INSTANTIATE_TEST_SUITE_P(Backend, SealedTest, ::testing::Values(UnderTest(), SealedUnderTest()),
                         [](const auto& i) { return i.param.name; });

TEST_P(SealedTest, NobodyOnTheWayReads) {
  Open();
  SendAndCompare(20);
  EXPECT_EQ(dialler_link_->Describe().ends_with(", sealed"), GetParam().sealed);
  TearDown();
  ASSERT_GT(tap_->seen.size(), 20 * 3000u);
  for (const std::string& text : texts_) {
    const bool shows = tap_->seen.find(text.substr(100, 16)) != std::string::npos;
    EXPECT_EQ(shows, !GetParam().sealed);
  }
}

TEST_P(SealedTest, TheSameTextIsSealedOtherwiseEachTime) {
  Open();
  const std::string text = Pattern(7, 5000);
  SendLedger ledger;
  for (int i = 0; i < 2; ++i) dialler_link_->Send(Lane::kBulk, BodyOf(text), ledger.Expect());
  ASSERT_TRUE(ledger.WaitForAll(2));
  TearDown();
  const size_t first = tap_->seen.find(text);
  EXPECT_EQ(first == std::string::npos, GetParam().sealed);
  size_t repeated = 0;
  for (size_t at = 0; at + 64 <= tap_->seen.size(); at += 64) {
    repeated += tap_->seen.find(tap_->seen.substr(at, 64), at + 1) != std::string::npos;
  }
  EXPECT_EQ(repeated > 0, !GetParam().sealed);
}

// A link that sealed all that it may send would not read meanwhile, and its peer would starve.
TEST_P(SealedTest, HandsAFewFramesAheadOfTheConnection) {
  constexpr size_t kFrames = 30;
  tap_->holds = true;
  Open();
  const std::string text = Pattern(3, 2000);
  SendLedger ledger;
  for (size_t i = 0; i < kFrames; ++i) {
    dialler_link_->Send(Lane::kBulk, BodyOf(text), ledger.Expect());
  }
  // All that is sent on the bulk lane was handed over before this frame comes.
  ASSERT_TRUE(at_listener_->WaitForFramesOn(Lane::kBulk, 4));
  dialler_link_->Send(Lane::kControl, BodyOf(text), ledger.Expect());
  ASSERT_TRUE(at_listener_->WaitForFramesOn(Lane::kControl, 1));
  EXPECT_EQ(at_listener_->frames().size(), 4 + 1u);
  // The link is told at last, on the loop of the tap.
  Notification told;
  ASSERT_TRUE(tap_->loop->Post([&] {
    tap_->holds = false;
    for (const auto& tell : std::exchange(tap_->held, {})) tell();
    told.Notify();
  }));
  told.Wait();
  ASSERT_TRUE(at_listener_->WaitForFramesOn(Lane::kBulk, kFrames));
  ASSERT_TRUE(ledger.WaitForAll(kFrames + 1));
  EXPECT_EQ(ledger.failed(), 0u);
}

// Who gets the other kind than its own has words for it, and neither gives way.
TEST_P(SealedTest, BothSidesMustWantTheSame) {
  LinkOptions other;
  other.sealed = !GetParam().sealed;
  OpenResult expected, dialled;
  listener_->Expect(Key(), kSecret, at_listener_, other, Deadline::After(kPatience),
                    expected.Done());
  dialler_->Dial({listener_->address()}, Key(), kSecret, at_dialler_, With({}),
                 Deadline::After(kPatience), dialled.Done());
  const Status refused = dialled.Wait().status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << refused;
  EXPECT_THAT(std::string(Message(refused)),
              HasSubstr(GetParam().sealed ? "is plain there, and the side that dials asks for "
                                            "encrypted"
                                          : "is encrypted there, and the side that dials asks for "
                                            "plain"));
  EXPECT_EQ(expected.calls(), 0);
  listener_->Cancel(Key());
}

using Tamper =
    std::function<std::vector<WireMessage>(const WireMessage&, const WireMessage& before)>;

// What is done to the tenth message, once: the connection ends before anybody reads of it, and the
// link goes on over a new one as if nothing had been.
class SealedOnlyTest : public SealedTest {
 protected:
  void Try(const std::string& what, const Tamper& tamper) {
    SCOPED_TRACE(what);
    WireMessage before;
    size_t number = 0;
    tap_->act = [&, number, before](const WireMessage& message) mutable {
      const WireMessage last = std::exchange(before, message);
      if (message.payload.empty() || ++number != 10) return std::vector{message};
      ++tap_->acted;
      return tamper(message, last);
    };
    Open();
    SendAndCompare(30);
    EXPECT_GE(dialler_link_->stats().reconnects, 1u);
    TearDown();
    EXPECT_EQ(tap_->acted, 1u);
  }
};

INSTANTIATE_TEST_SUITE_P(Backend, SealedOnlyTest, ::testing::Values(SealedUnderTest()),
                         [](const auto& i) { return i.param.name; });

WireMessage Changed(WireMessage message, bool in_header, size_t at) {
  std::vector<std::byte>& bytes = in_header ? message.header : message.payload;
  bytes[at % bytes.size()] ^= std::byte{1};
  return message;
}

TEST_P(SealedOnlyTest, APayloadIsChanged) {
  Try("payload", [](const WireMessage& one, const WireMessage&) {
    return std::vector{Changed(one, false, 1234)};
  });
}

TEST_P(SealedOnlyTest, AnAcknowledgementIsChanged) {
  Try("header", [](const WireMessage& one, const WireMessage&) {
    return std::vector{Changed(one, true, 16)};
  });
}

TEST_P(SealedOnlyTest, ATagIsChanged) {
  Try("tag", [](const WireMessage& one, const WireMessage&) {
    return std::vector{Changed(one, true, 63)};
  });
}

TEST_P(SealedOnlyTest, AMessageIsRepeated) {
  Try("repeated", [](const WireMessage& one, const WireMessage&) { return std::vector{one, one}; });
}

TEST_P(SealedOnlyTest, AMessageOfBeforeComesInstead) {
  Try("replayed", [](const WireMessage&, const WireMessage& last) { return std::vector{last}; });
}

TEST_P(SealedOnlyTest, AMessageIsTaken) {
  Try("taken", [](const WireMessage&, const WireMessage&) { return std::vector<WireMessage>(); });
}

TEST_P(SealedOnlyTest, AMessageIsCut) {
  Try("cut", [](const WireMessage& one, const WireMessage&) {
    WireMessage shorter = one;
    shorter.payload.pop_back();
    return std::vector{shorter};
  });
}

// Without a seal it would be taken for one of the peer's: its checksum is right.
TEST_P(SealedOnlyTest, AMessageIsMadeUp) {
  Try("made up", [](const WireMessage& one, const WireMessage&) {
    WireMessage forged = one;
    wire::LinkHeader header;
    header.version = wire::kLinkVersionMax;
    header.kind = wire::LinkKind::kGoodbye;
    header.sequence = 1;
    wire::EncodeLinkHeader(header, {}, {},
                           std::span<std::byte, wire::kLinkHeaderBytes>(forged.header));
    forged.payload.clear();
    return std::vector{forged};
  });
}

}  // namespace
}  // namespace longhaul::transport
