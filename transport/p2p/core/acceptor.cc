#include <fmt/core.h>

#include <string>
#include <string_view>
#include <utility>

#include "base/file.h"
#include "base/hash.h"
#include "base/peer_log.h"
#include "transport/p2p/core/flow.h"
#include "transport/p2p/core/handshake.h"

namespace longhaul::transport::internal {
namespace {

using wire::LinkHeader;
using wire::LinkKind;

// A guest proves itself within this time, and only so many are in the hall at once: strangers must
// not pile up.
constexpr absl::Duration kGuestLimit = absl::Seconds(5);
constexpr size_t kMaxGuests = 256;

// Whoever can connect can cause it. The port comes last in a description, and the peer may change
// it at will.
void WarnAbout(const Connection& connection, std::string_view message) {
  const std::string ends = connection.Describe();
  LogAboutPeer(LogLevel::kWarn, ends.substr(0, ends.rfind(':')),
               fmt::format("{} ({})", message, ends));
}

}  // namespace

// A connection whose peer has not proved yet that it knows a link's secret.
class Acceptor::Guest : public ConnectionEvents, public std::enable_shared_from_this<Guest> {
 public:
  Guest(std::shared_ptr<Acceptor> acceptor, std::shared_ptr<Connection> connection)
      : acceptor_(std::move(acceptor)), connection_(std::move(connection)) {}

  void Start() {
    connection_->SetEvents(shared_from_this());
    timer_ = acceptor_->loop_->AddTimer(acceptor_->loop_->now() + kGuestLimit,
                                        [self = shared_from_this()] {
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
    const Place* const place = acceptor_->Find(hello->key, link_id_, hello->attempt);
    if (place == nullptr) return RefuseUnknown(*hello);
    if (hello->stage == kStageIntroduce) {
      Challenge(*hello, *place);
    } else {
      CheckProof(*decoded, *hello, *place);
    }
  }

  void OnClosed(const Status&) override { Leave(); }

  void Drop() {
    over_ = true;
    connection_->Close();  // and OnClosed lets go of this
  }

 private:
  void RefuseUnknown(const LinkHello& hello) {
    if (hello.attempt == 0) {
      return Refuse({.retry = true,
                     .code = absl::StatusCode::kNotFound,
                     .reason = fmt::format("{} is not expected there (yet)", Describe(hello.key))});
    }
    Refuse({.code = absl::StatusCode::kUnavailable,
            .reason = fmt::format("the peer no longer has the link of {}: it has ended it, or was "
                                  "started anew",
                                  Describe(hello.key))});
  }

  void Challenge(const LinkHello& hello, const Place& place) {
    // Once for each connection: the proof that follows is about this one hello.
    if (introduced_) return RefuseOutOfTurn();
    if (hello.sealed != place.sealed) return RefuseUnlike(hello);
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
              .attempt = hello.attempt,
              .dialler_received = hello.received,
              .dialler_nonce = hello.nonce,
              .listener_nonce = ephemeral_.public_key(),
              .sealed = hello.sealed};
    // A connection that replaces a broken one says what has come, so that the peer sends the rest.
    if (place.received) proof_.listener_received = place.received()[static_cast<size_t>(lane_)];
    SendHandshakeFrame(*connection_, LinkKind::kWelcome, lane_, link_id_, 0,
                       EncodeWelcome({.stage = kStageIntroduce,
                                      .version = *version,
                                      .received = proof_.listener_received,
                                      .nonce = proof_.listener_nonce,
                                      .proof = Prove(place.secret, Side::kListener, proof_)}));
  }

  void CheckProof(const LinkHeader& header, const LinkHello& hello, const Place& place) {
    // The proof holds for what was introduced, nothing else.
    if (!introduced_ || hello.key != proof_.key || lane_ != proof_.lane ||
        link_id_ != proof_.link_id || link_id_ == 0 || hello.attempt != proof_.attempt ||
        hello.sealed != proof_.sealed) {
      return RefuseOutOfTurn();
    }
    // In constant time: how long a comparison takes must not tell how much of a guess is right.
    if (!ConstantTimeEqual(hello.proof, Prove(place.secret, Side::kDialler, proof_))) {
      WarnAbout(*connection_,
                fmt::format("{}: a peer with a wrong secret was refused", Describe(hello.key)));
      return Refuse({.code = absl::StatusCode::kPermissionDenied,
                     .reason = fmt::format("wrong secret for {}", Describe(hello.key))});
    }
    if (header.credits == 0 || header.credits > kMaxCredits) {
      return Refuse(
          {.code = absl::StatusCode::kInvalidArgument,
           .reason = fmt::format("{} credits; 1 to {} are allowed", header.credits, kMaxCredits)});
    }
    std::shared_ptr<Connection> opens = connection_;
    if (proof_.sealed) {
      StatusOr<std::shared_ptr<Connection>> sealed =
          SealedAfter(connection_, place.secret, Side::kListener, ephemeral_, proof_);
      if (!sealed.ok()) {
        return Refuse(
            {.code = sealed.status().code(), .reason = std::string(Message(sealed.status()))});
      }
      opens = *std::move(sealed);
    }
    // In the clear on a sealed link too: the dialler reads plain messages up to this one.
    SendHandshakeFrame(*connection_, LinkKind::kWelcome, lane_, link_id_, place.credits,
                       EncodeWelcome({.stage = kStageProve, .version = proof_.version}));
    over_ = true;
    // Leave releases what is perhaps the last reference to this guest.
    const std::shared_ptr<Guest> self = shared_from_this();
    Leave();
    OpenedLink proved{.link_id = link_id_,
                      .version = proof_.version,
                      .attempt = proof_.attempt,
                      .peer_credits = header.credits};
    const auto l = static_cast<size_t>(lane_);
    proved.told[l] = proof_.listener_received;
    proved.received[l] = proof_.dialler_received;
    proved.connections[l] = std::move(opens);
    acceptor_->OnProved(hello.key, lane_, std::move(proved));
  }

  // Neither side gives way: what a run's file asks for holds, or its links do not open.
  void RefuseUnlike(const LinkHello& hello) {
    const auto name = [](bool sealed) { return sealed ? "encrypted" : "plain"; };
    Refuse({.code = absl::StatusCode::kFailedPrecondition,
            .reason = fmt::format("{} is {} there, and the side that dials asks for {}; both need "
                                  "the same plan and release",
                                  Describe(hello.key), name(!hello.sealed), name(hello.sealed))});
  }

  void RefuseOutOfTurn() {
    Refuse({.code = absl::StatusCode::kInvalidArgument, .reason = "hello out of turn"});
  }

  void Refuse(const LinkRefusal& refusal) {
    over_ = true;
    SendHandshakeFrame(*connection_, LinkKind::kRefuse, lane_, link_id_, 0, EncodeRefusal(refusal));
    // The dialler hangs up when it has read this; dropping now could take the sentence along.
  }

  void Leave() {
    if (timer_) acceptor_->loop_->CancelTimer(*timer_);
    timer_.reset();
    acceptor_->guests_.erase(shared_from_this());
  }

  const std::shared_ptr<Acceptor> acceptor_;
  const std::shared_ptr<Connection> connection_;
  std::optional<EventLoop::TimerId> timer_;
  bool introduced_ = false;
  bool over_ = false;  // refused, dropped or proved
  Lane lane_ = Lane::kBulk;
  uint64_t link_id_ = 0;
  const EphemeralKey ephemeral_;  // its public half is the nonce
  ProofInput proof_;
};

// Events of a lane that is proved while the other is not: nothing may come before the link is open.
class Acceptor::HalfOpenEvents : public ConnectionEvents {
 public:
  HalfOpenEvents(std::weak_ptr<Acceptor> acceptor, LinkKey key, const OpenedLink& half_open)
      : acceptor_(std::move(acceptor)),
        key_(std::move(key)),
        link_id_(half_open.link_id),
        attempt_(half_open.attempt) {}
  void OnMessage(std::span<const std::byte>, std::span<const std::byte>) override { GiveUp(); }
  void OnClosed(const Status&) override { GiveUp(); }

 private:
  void GiveUp() {
    const auto acceptor = acceptor_.lock();
    Place* const place = acceptor ? acceptor->Find(key_, link_id_, attempt_) : nullptr;
    if (place != nullptr && place->half_open.link_id == link_id_ &&
        place->half_open.attempt == attempt_) {
      acceptor->DropHalfOpen(*place);
    }
  }

  const std::weak_ptr<Acceptor> acceptor_;
  const LinkKey key_;
  const uint64_t link_id_;
  const uint32_t attempt_;
};

Acceptor::Place* Acceptor::Find(const LinkKey& key, uint64_t link_id, uint32_t attempt) {
  if (attempt == 0) {
    const auto found = expected_.find(key);
    return found == expected_.end() ? nullptr : &found->second;
  }
  const auto found = open_.find({key, link_id});
  return found == open_.end() ? nullptr : &found->second;
}

void Acceptor::Expect(const LinkKey& key, std::string secret, const LinkOptions& options,
                      MonoTime deadline, Done done) {
  if (expected_.contains(key)) {
    loop_->Post([key, done = std::move(done)] {
      done(AlreadyExists("{} is expected already; cancel that first", Describe(key)));
    });
    return;
  }
  Place& place = expected_[key];
  place.secret = std::move(secret);
  place.credits = options.credits;
  place.sealed = options.sealed;
  place.done = std::move(done);
  const MonoTime started = loop_->now();
  place.timer = loop_->AddTimer(deadline, [self = shared_from_this(), key, started] {
    auto node = self->expected_.extract(key);
    self->DropHalfOpen(node.mapped());
    node.mapped().done(
        DeadlineExceeded("link of {}: no peer that knows its secret dialled within {:.1f} s",
                         Describe(key), absl::ToDoubleSeconds(self->loop_->now() - started)));
  });
}

bool Acceptor::Cancel(const LinkKey& key) {
  auto node = expected_.extract(key);
  if (node.empty()) return false;
  loop_->CancelTimer(*node.mapped().timer);
  DropHalfOpen(node.mapped());
  return true;
}

void Acceptor::Hold(const LinkKey& key, uint64_t link_id, std::string secret,
                    const LinkOptions& options, std::function<Received()> received, Done done) {
  Place& place = open_[{key, link_id}];
  place.secret = std::move(secret);
  place.credits = options.credits;
  place.sealed = options.sealed;
  place.received = std::move(received);
  place.done = std::move(done);
}

void Acceptor::Release(const LinkKey& key, uint64_t link_id) {
  auto node = open_.extract({key, link_id});
  if (!node.empty()) DropHalfOpen(node.mapped());
}

void Acceptor::Accept(std::shared_ptr<Connection> connection) {
  if (guests_.size() >= kMaxGuests) {
    WarnAbout(*connection,
              fmt::format("{} connections wait to prove themselves; a further one was dropped",
                          guests_.size()));
    connection->Close();
    return;
  }
  const auto guest = std::make_shared<Guest>(shared_from_this(), std::move(connection));
  guests_.insert(guest);
  guest->Start();
}

void Acceptor::DropHalfOpen(Place& place) {
  const OpenedLink dropped = std::exchange(place.half_open, {});
  for (const auto& connection : dropped.connections) {
    if (connection) connection->Close();
  }
}

void Acceptor::OnProved(const LinkKey& key, Lane lane, OpenedLink proved) {
  Place& place = *Find(key, proved.link_id, proved.attempt);
  OpenedLink& half_open = place.half_open;
  const auto l = static_cast<size_t>(lane);
  if (proved.attempt < half_open.attempt ||
      (place.received && proved.attempt <= place.newest_attempt)) {
    proved.connections[l]->Close();  // of an attempt that the dialler has given up
    return;
  }
  if (half_open.link_id != proved.link_id || half_open.attempt != proved.attempt ||
      half_open.version != proved.version) {
    // A dialler that gave up and tries again: the newer try counts.
    DropHalfOpen(place);
    half_open = {.link_id = proved.link_id, .version = proved.version, .attempt = proved.attempt};
  }
  auto& connection = half_open.connections[l];
  if (connection) connection->Close();
  if (lane == Lane::kBulk) half_open.peer_credits = proved.peer_credits;
  half_open.told[l] = proved.told[l];
  half_open.received[l] = proved.received[l];
  connection = std::move(proved.connections[l]);
  connection->SetEvents(std::make_shared<HalfOpenEvents>(weak_from_this(), key, half_open));
  if (!half_open.connections[0] || !half_open.connections[1]) return;
  if (place.received) {
    place.newest_attempt = half_open.attempt;
    const Done done = place.done;  // may release the place
    done(std::exchange(half_open, {}));
    return;
  }
  // Out of the map before `done`, which may expect the same key anew.
  auto node = expected_.extract(key);
  loop_->CancelTimer(*node.mapped().timer);
  node.mapped().done(std::move(node.mapped().half_open));
}

void Acceptor::Shutdown() {
  for (auto& [key, place] : expected_) {
    loop_->CancelTimer(*place.timer);
    DropHalfOpen(place);
  }
  expected_.clear();
  for (auto& [key, place] : open_) DropHalfOpen(place);
  open_.clear();
  // A copy: a guest that closes leaves guests_.
  for (const auto& guest : std::set(guests_)) guest->Drop();
}

}  // namespace longhaul::transport::internal
