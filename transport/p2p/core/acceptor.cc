#include <fmt/core.h>
#include <spdlog/spdlog.h>

#include <utility>

#include "base/file.h"
#include "base/hash.h"
#include "transport/p2p/core/handshake.h"

namespace longhaul::transport::internal {
namespace {

using wire::LinkHeader;
using wire::LinkKind;

// A guest proves itself within this time, and only so many are in the hall at once: strangers must
// not pile up.
constexpr absl::Duration kGuestLimit = absl::Seconds(5);
constexpr size_t kMaxGuests = 256;

}  // namespace

// A connection that has not proved itself yet.
class Acceptor::Guest : public ChannelEvents, public std::enable_shared_from_this<Guest> {
 public:
  Guest(std::shared_ptr<Acceptor> acceptor, std::shared_ptr<Channel> channel)
      : acceptor_(std::move(acceptor)), channel_(std::move(channel)) {}

  void Start() {
    channel_->SetEvents(shared_from_this());
    timer_ = acceptor_->loop_->AddTimer(Now() + kGuestLimit, [self = shared_from_this()] {
      self->timer_.reset();
      self->Drop();
    });
  }

  void OnMessage(std::span<const std::byte> header, std::span<const std::byte> payload) override {
    if (over_) return;
    const StatusOr<LinkHeader> decoded = wire::DecodeLinkHeader(header, payload);
    if (!decoded.ok())
      return Refuse(
          {.code = decoded.status().code(), .reason = std::string(Message(decoded.status()))});
    link_id_ = decoded->link_id;
    lane_ = static_cast<Lane>(decoded->lane);
    const StatusOr<LinkHello> hello = decoded->kind == LinkKind::kHello
                                          ? DecodeHello(payload)
                                          : absl::InvalidArgumentError("expected a hello first");
    if (!hello.ok())
      return Refuse(
          {.code = hello.status().code(), .reason = std::string(Message(hello.status()))});
    const auto expected = acceptor_->expected_.find(hello->key);
    if (expected == acceptor_->expected_.end()) {
      return Refuse(
          {.retry = true,
           .code = absl::StatusCode::kNotFound,
           .reason = fmt::format("{} is not expected there (yet)", Describe(hello->key))});
    }
    if (hello->stage == kStageIntroduce) {
      Challenge(*hello, expected->second.secret);
    } else {
      CheckProof(*decoded, *hello, expected->second);
    }
  }

  void OnClosed(const Status&) override { Leave(); }

  void Drop() {
    over_ = true;
    channel_->Close();  // and OnClosed lets go of this
  }

 private:
  void Challenge(const LinkHello& hello, const std::string& secret) {
    if (introduced_) return RefuseOutOfTurn();
    const StatusOr<uint16_t> version = ChooseVersion(wire::kLinkVersionMin, wire::kLinkVersionMax,
                                                     hello.version_min, hello.version_max);
    if (!version.ok())
      return Refuse(
          {.code = version.status().code(), .reason = std::string(Message(version.status()))});
    introduced_ = true;
    proof_ = {.lane = lane_,
              .link_id = link_id_,
              .version_min = hello.version_min,
              .version_max = hello.version_max,
              .version = *version,
              .key = hello.key,
              .dialler_nonce = hello.nonce,
              .listener_nonce = RandomBytes(kNonceBytes)};
    SendHandshakeFrame(*channel_, LinkKind::kWelcome, lane_, link_id_, 0,
                       EncodeWelcome({.stage = kStageIntroduce,
                                      .version = *version,
                                      .nonce = proof_.listener_nonce,
                                      .proof = Prove(secret, Side::kListener, proof_)}));
  }

  void CheckProof(const LinkHeader& header, const LinkHello& hello, const Expected& expected) {
    if (!introduced_ || hello.key != proof_.key || lane_ != proof_.lane ||
        link_id_ != proof_.link_id || link_id_ == 0) {
      return RefuseOutOfTurn();
    }
    if (!ConstantTimeEqual(hello.proof, Prove(expected.secret, Side::kDialler, proof_))) {
      spdlog::warn("{}: a peer with a wrong secret was refused ({})", Describe(hello.key),
                   channel_->Describe());
      return Refuse({.code = absl::StatusCode::kPermissionDenied,
                     .reason = fmt::format("wrong secret for {}", Describe(hello.key))});
    }
    if (header.credits == 0 || header.credits > kMaxCredits) {
      return Refuse(
          {.code = absl::StatusCode::kInvalidArgument,
           .reason = fmt::format("{} credits; 1 to {} are allowed", header.credits, kMaxCredits)});
    }
    SendHandshakeFrame(*channel_, LinkKind::kWelcome, lane_, link_id_, expected.credits,
                       EncodeWelcome({.stage = kStageProve, .version = proof_.version}));
    over_ = true;
    const std::shared_ptr<Guest> self = shared_from_this();
    Leave();
    acceptor_->OnProved(
        hello.key, lane_,
        {.link_id = link_id_, .version = proof_.version, .peer_credits = header.credits}, channel_);
  }

  void RefuseOutOfTurn() {
    Refuse({.code = absl::StatusCode::kInvalidArgument, .reason = "hello out of turn"});
  }

  void Refuse(const LinkRefusal& refusal) {
    over_ = true;
    SendHandshakeFrame(*channel_, LinkKind::kRefuse, lane_, link_id_, 0, EncodeRefusal(refusal));
    // The dialler hangs up when it has read this; dropping now could take the sentence along.
  }

  void Leave() {
    if (timer_) acceptor_->loop_->CancelTimer(*timer_);
    timer_.reset();
    acceptor_->guests_.erase(shared_from_this());
  }

  const std::shared_ptr<Acceptor> acceptor_;
  const std::shared_ptr<Channel> channel_;
  std::optional<EventLoop::TimerId> timer_;
  bool introduced_ = false;
  bool over_ = false;  // refused, dropped or proved
  Lane lane_ = Lane::kBulk;
  uint64_t link_id_ = 0;
  ProofInput proof_;
};

// Events of a lane that is proved while the other is not: nothing may come before the link is open.
class Acceptor::HalfOpenEvents : public ChannelEvents {
 public:
  HalfOpenEvents(std::weak_ptr<Acceptor> acceptor, LinkKey key, uint64_t link_id)
      : acceptor_(std::move(acceptor)), key_(std::move(key)), link_id_(link_id) {}
  void OnMessage(std::span<const std::byte>, std::span<const std::byte>) override { GiveUp(); }
  void OnClosed(const Status&) override { GiveUp(); }

 private:
  void GiveUp() {
    const auto acceptor = acceptor_.lock();
    if (!acceptor) return;
    const auto expected = acceptor->expected_.find(key_);
    if (expected != acceptor->expected_.end() && expected->second.half_open.link_id == link_id_) {
      acceptor->DropHalfOpen(expected->second);
    }
  }

  const std::weak_ptr<Acceptor> acceptor_;
  const LinkKey key_;
  const uint64_t link_id_;
};

void Acceptor::Expect(const LinkKey& key, std::string secret, uint32_t credits, MonoTime deadline,
                      Done done) {
  if (expected_.contains(key)) {
    loop_->Post([key, done = std::move(done)] {
      done(absl::AlreadyExistsError(
          fmt::format("{} is expected already; cancel that first", Describe(key))));
    });
    return;
  }
  Expected expected{.secret = std::move(secret), .credits = credits, .done = std::move(done)};
  const MonoTime started = Now();
  expected.timer = loop_->AddTimer(deadline, [self = shared_from_this(), key, started] {
    auto node = self->expected_.extract(key);
    self->DropHalfOpen(node.mapped());
    node.mapped().done(absl::DeadlineExceededError(
        fmt::format("link of {}: no peer that knows its secret dialled within {:.1f} s",
                    Describe(key), absl::ToDoubleSeconds(Now() - started))));
  });
  expected_.emplace(key, std::move(expected));
}

bool Acceptor::Cancel(const LinkKey& key) {
  auto node = expected_.extract(key);
  if (node.empty()) return false;
  loop_->CancelTimer(node.mapped().timer);
  DropHalfOpen(node.mapped());
  return true;
}

void Acceptor::Accept(std::shared_ptr<Channel> channel) {
  if (guests_.size() >= kMaxGuests) {
    spdlog::warn("{} connections wait to prove themselves; a further one was dropped ({})",
                 guests_.size(), channel->Describe());
    channel->Close();
    return;
  }
  const auto guest = std::make_shared<Guest>(shared_from_this(), std::move(channel));
  guests_.insert(guest);
  guest->Start();
}

void Acceptor::DropHalfOpen(Expected& expected) {
  const OpenedLink dropped = std::exchange(expected.half_open, {});
  for (const auto& channel : dropped.channels) {
    if (channel) channel->Close();
  }
}

void Acceptor::OnProved(const LinkKey& key, Lane lane, const OpenedLink& proved,
                        std::shared_ptr<Channel> channel) {
  Expected& expected = expected_.at(key);
  OpenedLink& half_open = expected.half_open;
  if (half_open.link_id != proved.link_id || half_open.version != proved.version) {
    // A dialler that gave up and tries again: the newer try counts.
    DropHalfOpen(expected);
    half_open = {.link_id = proved.link_id, .version = proved.version};
  }
  auto& place = half_open.channels[static_cast<size_t>(lane)];
  if (place) place->Close();
  if (lane == Lane::kBulk) half_open.peer_credits = proved.peer_credits;
  channel->SetEvents(std::make_shared<HalfOpenEvents>(weak_from_this(), key, proved.link_id));
  place = std::move(channel);
  if (!half_open.channels[0] || !half_open.channels[1]) return;
  auto node = expected_.extract(key);
  loop_->CancelTimer(node.mapped().timer);
  node.mapped().done(std::move(node.mapped().half_open));
}

void Acceptor::Shutdown() {
  for (auto& [key, expected] : expected_) {
    loop_->CancelTimer(expected.timer);
    DropHalfOpen(expected);
  }
  expected_.clear();
  for (const auto& guest : std::set(guests_)) guest->Drop();
}

}  // namespace longhaul::transport::internal
