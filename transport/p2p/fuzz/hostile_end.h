// The peer of link_machine_fuzz.cc: connections that the fuzzer speaks on, and the words of the
// handshake and of an open link, right or wrong. Not for programs. Threads: one.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/seal.h"
#include "proto/wire/link_header.h"
#include "proto/wire/little_endian.h"
#include "transport/p2p/core/connection.h"
#include "transport/p2p/core/hello.h"

namespace longhaul::transport::internal {

inline const std::string kHostileSecret = "the secret of the link";

// A frame as it travels.
struct HostileFrame {
  std::array<std::byte, wire::kLinkHeaderBytes> header{};
  std::vector<std::byte> payload;
};

// Payloads of frames that count themselves begin so; the number follows.
inline constexpr uint64_t kCountingMark = 0x12345678'9abcdef0;
inline std::vector<std::byte> CountingPayload(uint64_t number, size_t more) {
  std::vector<std::byte> payload(16 + more);
  wire::PutLe<uint64_t>(payload, 0, kCountingMark);
  wire::PutLe<uint64_t>(payload, 8, number);
  return payload;
}
inline std::optional<uint64_t> NumberOf(std::span<const std::byte> payload) {
  if (payload.size() < 16 || wire::GetLe<uint64_t>(payload, 0) != kCountingMark) return {};
  return wire::GetLe<uint64_t>(payload, 8);
}

// One connection of the end that is attacked.
class HostileConnection : public Connection,
                          public std::enable_shared_from_this<HostileConnection> {
 public:
  explicit HostileConnection(std::shared_ptr<EventLoop> loop) : loop_(std::move(loop)) {}

  void SetEvents(std::shared_ptr<ConnectionEvents> events) override { events_ = std::move(events); }
  void Send(std::span<const std::byte> header, const FrameView& payload, SendDone done) override {
    if (!closed_) {
      HostileFrame& frame = heard.emplace_back();
      if (header.size() != frame.header.size()) std::abort();
      std::ranges::copy(header, frame.header.begin());
      frame.payload.assign(payload.header.begin(), payload.header.end());
      frame.payload.insert(frame.payload.end(), payload.body.begin(), payload.body.end());
    }
    loop_->Post([done = std::move(done), closed = closed_] {
      done(closed ? absl::CancelledError("closed") : absl::OkStatus());
    });
  }
  void Close() override { EndWith(absl::CancelledError("closed on this side")); }
  std::string Describe() const override { return "here:1 <-> hostile:2"; }

  // For the fuzzer.
  void Say(const HostileFrame& frame) {
    const auto events = events_;
    if (!closed_ && events) events->OnMessage(frame.header, frame.payload);
  }
  void Break() { EndWith(absl::UnavailableError("reset")); }
  bool closed() const { return closed_; }

  std::vector<HostileFrame> heard;  // what the attacked end has sent
  std::vector<HostileFrame> said;

 private:
  void EndWith(const Status& reason) {
    if (std::exchange(closed_, true)) return;
    loop_->Post([self = shared_from_this(), reason] {
      if (const auto events = std::exchange(self->events_, nullptr)) events->OnClosed(reason);
      self->on_gone();
    });
  }

  const std::shared_ptr<EventLoop> loop_;
  std::shared_ptr<ConnectionEvents> events_;
  bool closed_ = false;

 public:
  std::function<void()> on_gone = [] {};
};

class HostileBackend : public Backend {
 public:
  std::string name() const override { return "hostile"; }
  StatusOr<std::string> Start(const std::shared_ptr<EventLoop>& loop, Accept accept) override {
    loop_ = loop;
    accept_ = std::move(accept);
    return "here:1";
  }
  StatusOr<std::shared_ptr<Connection>> Connect(const std::string&) override { return Add(); }
  void Shutdown(std::function<void()> done) override {
    const auto all = open_.size();
    done_ = std::move(done);
    if (all == 0) return loop_->Post(std::exchange(done_, nullptr)), void();
    for (const auto& connection : connections) connection->Close();
  }

  // The fuzzer dials.
  void Dial() { accept_(Add()); }

  std::vector<std::shared_ptr<HostileConnection>> connections;  // all that ever were

 private:
  std::shared_ptr<HostileConnection> Add() {
    auto connection = std::make_shared<HostileConnection>(loop_);
    connection->on_gone = [this, of = connection.get()] {
      open_.erase(of);
      if (open_.empty() && done_) loop_->Post(std::exchange(done_, nullptr));
    };
    open_.insert(connection.get());
    connections.push_back(connection);
    return connection;
  }

  std::shared_ptr<EventLoop> loop_;
  Accept accept_;
  std::set<HostileConnection*> open_;
  std::function<void()> done_;
};

// Says what the fuzzer chooses. With `knows` it proves itself by the book, where it is told to.
class HostilePeer {
 public:
  struct Options {
    bool listens = false, sealed = false, knows = false;
    LinkKey key;
  };
  explicit HostilePeer(Options options) : options_(std::move(options)) {}

  // `act` is one of the cases below; `which` picks the connection.
  void Act(HostileBackend& backend, uint8_t act, uint8_t which, uint8_t a, uint8_t b) {
    constexpr size_t kMostConnections = 400;
    if (act == 0) {
      if (!options_.listens || backend.connections.size() >= kMostConnections) return;
      backend.Dial();
      return;
    }
    if (backend.connections.empty()) return;
    lines_.resize(backend.connections.size());
    const size_t index = which % backend.connections.size();
    // The newest are the most interesting: counted from the end.
    const size_t at = backend.connections.size() - 1 - index;
    HostileConnection& connection = *backend.connections[at];
    Line& line = lines_[at];
    switch (act) {
      case 1:
        return SayRaw(connection, a, b);
      case 2:
      case 3:
        return SayFrame(connection, line, a, b);
      case 4:
        return options_.listens ? Introduce(connection, line, a, b) : Welcome(connection, line, a);
      case 5:
        return options_.listens ? ProveDialler(connection, line, a) : Admit(connection, line, a);
      case 6:
      case 7:
      case 8:
        return SayData(connection, line, a, b);
      case 9:
        return connection.Break();
      case 10:  // the same words again, perhaps on another connection
        if (!said_.empty()) connection.Say(said_[a % said_.size()]);
        return;
      case 11:
        return Acknowledge(connection, line, a);
      default:
        return Refuse(connection, line, a);
    }
  }

 private:
  // What the peer knows of one connection.
  struct Line {
    Lane lane = Lane::kBulk;
    uint32_t attempt = 0;
    uint64_t link_id = 0;
    uint64_t sequence = 0;
    EphemeralKey own;
    ProofInput input;
    std::unique_ptr<Sealer> seals;  // once both have proved themselves, over a sealed link
  };

  void Say(HostileConnection& connection, const HostileFrame& frame) {
    constexpr size_t kMostKept = 64;
    if (said_.size() < kMostKept) said_.push_back(frame);
    connection.Say(frame);
  }

  void SayHeader(HostileConnection& connection, Line& line, wire::LinkHeader header,
                 std::vector<std::byte> payload) {
    HostileFrame frame{.header = {}, .payload = std::move(payload)};
    header.payload_bytes = static_cast<uint32_t>(frame.payload.size());
    const bool seal = line.seals != nullptr;
    wire::EncodeLinkHeader(header, frame.payload, {}, frame.header,
                           seal ? wire::LinkGuard::kSeal : wire::LinkGuard::kChecksum);
    if (seal) {
      std::vector<std::byte> sealed(frame.payload.size());
      const std::span<std::byte, wire::kLinkHeaderBytes> head(frame.header);
      line.seals->Seal(head.first<wire::kLinkTagAt>(), frame.payload, {}, sealed.data(),
                       head.subspan<wire::kLinkTagAt>());
      frame.payload = std::move(sealed);
    }
    Say(connection, frame);
  }

  wire::LinkHeader HeaderOf(const Line& line, wire::LinkKind kind) const {
    wire::LinkHeader header;
    header.version = wire::kLinkVersionMin;
    header.kind = kind;
    header.lane = static_cast<uint8_t>(line.lane);
    header.link_id = line.link_id;
    header.credits = 4;
    return header;
  }

  // Bytes that are hardly a frame.
  void SayRaw(HostileConnection& connection, uint8_t a, uint8_t b) {
    HostileFrame frame;
    std::ranges::fill(frame.header, std::byte{a});
    frame.payload.assign(size_t{b} * 260, std::byte{a});
    if (b % 2 == 0) {
      wire::LinkHeader header;
      wire::EncodeLinkHeader(header, frame.payload, {}, frame.header);
      frame.header[a % frame.header.size()] ^= std::byte{std::max<uint8_t>(b, 1)};
    }
    Say(connection, frame);
  }

  // A whole frame of any kind with any numbers.
  void SayFrame(HostileConnection& connection, Line& line, uint8_t a, uint8_t b) {
    constexpr std::array<uint64_t, 8> kNumbers = {0, 1, 2, 3, 5, 1000, 1ull << 63, ~0ull};
    wire::LinkHeader header = HeaderOf(line, static_cast<wire::LinkKind>(1 + a % 7));
    header.version = b % 2 == 0 ? wire::kLinkVersionMin : wire::kLinkVersionMax;
    header.sequence = b % 16 < 8 ? line.sequence + 1 : kNumbers[a % 8];
    header.acknowledgement = kNumbers[b / 16 % 8];
    header.credits = static_cast<uint32_t>(kNumbers[(a + b) % 8]);
    if (a >= 200) header.lane ^= 1;
    if (b >= 240) header.link_id ^= 1;
    SayHeader(connection, line, header, std::vector<std::byte>(b % 5 * 16, std::byte{a}));
  }

  void Introduce(HostileConnection& connection, Line& line, uint8_t a, uint8_t b) {
    line.lane = (a & 1) == 0 ? Lane::kBulk : Lane::kControl;
    line.attempt = a / 2 % 4;
    line.link_id = a < 192 ? 77 : b;
    line.input = {.lane = line.lane,
                  .link_id = line.link_id,
                  .version_min = wire::kLinkVersionOfSeals,
                  .version_max = wire::kLinkVersionMax,
                  .version = wire::kLinkVersionMax,
                  .key = options_.key,
                  .attempt = line.attempt,
                  .dialler_received = b < 224 ? 0u : b,
                  .dialler_nonce = line.own.public_key(),
                  .sealed = options_.sealed != (b % 32 == 31)};
    SayHello(connection, line, kStageIntroduce, {});
  }

  void SayHello(HostileConnection& connection, Line& line, uint8_t stage, std::string proof) {
    const LinkHello hello{.stage = stage,
                          .sealed = line.input.sealed,
                          .version_min = line.input.version_min,
                          .version_max = line.input.version_max,
                          .key = line.input.key,
                          .attempt = line.input.attempt,
                          .received = line.input.dialler_received,
                          .nonce = line.own.public_key(),
                          .proof = std::move(proof)};
    SayHeader(connection, line, HeaderOf(line, wire::LinkKind::kHello), EncodeHello(hello));
  }

  // The first message of the attacked end on this connection, if it is of this kind.
  static const HostileFrame* Heard(const HostileConnection& connection, wire::LinkKind kind) {
    for (const HostileFrame& frame : connection.heard) {
      const auto header = wire::DecodeLinkHeader(frame.header, frame.payload);
      if (header.ok() && header->kind == kind) return &frame;
    }
    return nullptr;
  }

  void ProveDialler(HostileConnection& connection, Line& line, uint8_t a) {
    const HostileFrame* const heard = Heard(connection, wire::LinkKind::kWelcome);
    std::string proof(kProofBytes, static_cast<char>(a));
    bool right = false;
    if (heard != nullptr) {
      const auto welcome = DecodeWelcome(heard->payload);
      if (!welcome.ok()) std::abort();  // it speaks by the book
      line.input.version = welcome->version;
      line.input.listener_received = welcome->received;
      line.input.listener_nonce = welcome->nonce;
      right = options_.knows && a < 224;
      if (right) proof = Prove(kHostileSecret, Side::kDialler, line.input);
    }
    SayHello(connection, line, kStageProve, proof);
    if (right) StartSealing(line, Side::kDialler, line.input.listener_nonce);
  }

  void Welcome(HostileConnection& connection, Line& line, uint8_t a) {
    const HostileFrame* const heard = Heard(connection, wire::LinkKind::kHello);
    if (heard == nullptr) return;
    const auto header = wire::DecodeLinkHeader(heard->header, heard->payload);
    const auto hello = DecodeHello(heard->payload);
    if (!hello.ok()) std::abort();
    line.lane = static_cast<Lane>(header->lane);
    line.link_id = header->link_id;
    line.input = {.lane = line.lane,
                  .link_id = line.link_id,
                  .version_min = hello->version_min,
                  .version_max = hello->version_max,
                  .version = hello->version_max,
                  .key = hello->key,
                  .attempt = hello->attempt,
                  .dialler_received = hello->received,
                  .listener_received = a % 16 == 15 ? 9u : 0u,
                  .dialler_nonce = hello->nonce,
                  .listener_nonce = line.own.public_key(),
                  .sealed = hello->sealed};
    const bool right = options_.knows && a < 224;
    const LinkWelcome welcome{.stage = kStageIntroduce,
                              .version = line.input.version,
                              .received = line.input.listener_received,
                              .nonce = line.own.public_key(),
                              .proof = right ? Prove(kHostileSecret, Side::kListener, line.input)
                                             : std::string(kProofBytes, static_cast<char>(a))};
    SayHeader(connection, line, HeaderOf(line, wire::LinkKind::kWelcome), EncodeWelcome(welcome));
  }

  void Admit(HostileConnection& connection, Line& line, uint8_t a) {
    wire::LinkHeader header = HeaderOf(line, wire::LinkKind::kWelcome);
    if (a >= 240) header.credits = a == 240 ? 0 : ~0u;
    SayHeader(connection, line, header,
              EncodeWelcome({.stage = kStageProve, .version = line.input.version}));
    if (options_.knows && !line.input.dialler_nonce.empty()) {
      StartSealing(line, Side::kListener, line.input.dialler_nonce);
    }
  }

  void StartSealing(Line& line, Side side, const std::string& nonce) {
    if (!line.input.sealed || line.seals) return;
    const auto agreed = line.own.Agree(nonce);
    if (!agreed.ok()) std::abort();
    line.seals = std::make_unique<Sealer>(SealKeyOf(kHostileSecret, *agreed, side, line.input));
  }

  // The next frame of its lane by the book; or one that repeats or leaves out numbers.
  void SayData(HostileConnection& connection, Line& line, uint8_t a, uint8_t b) {
    wire::LinkHeader header = HeaderOf(line, wire::LinkKind::kData);
    header.version = wire::kLinkVersionMax;
    uint64_t& next = sequences_[static_cast<size_t>(line.lane)];
    if (a < 224) {
      header.sequence = ++next;
    } else {
      header.sequence = next + a % 4;  // the last one again, or a gap
    }
    line.sequence = header.sequence;
    SayHeader(connection, line, header, CountingPayload(header.sequence, b));
  }

  void Acknowledge(HostileConnection& connection, Line& line, uint8_t a) {
    wire::LinkHeader header = HeaderOf(line, wire::LinkKind::kHeartbeat);
    header.version = wire::kLinkVersionMax;
    header.acknowledgement = a % 8;
    SayHeader(connection, line, header, {});
  }

  void Refuse(HostileConnection& connection, Line& line, uint8_t a) {
    SayHeader(connection, line, HeaderOf(line, wire::LinkKind::kRefuse),
              EncodeRefusal({.retry = a % 2 == 0, .reason = std::string(a, '\x1b')}));
  }

  const Options options_;
  std::vector<Line> lines_;  // of HostileBackend::connections
  std::array<uint64_t, kLanes> sequences_{};
  std::vector<HostileFrame> said_;
};

}  // namespace longhaul::transport::internal
