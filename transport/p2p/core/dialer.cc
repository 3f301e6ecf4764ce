#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/file.h"
#include "base/hash.h"
#include "transport/p2p/core/flow.h"
#include "transport/p2p/core/handshake.h"
#include "transport/p2p/core/sealed_connection.h"

namespace longhaul::transport::internal {
namespace {

using wire::LinkHeader;
using wire::LinkKind;

constexpr absl::Duration kFirstPause = absl::Milliseconds(10);
constexpr absl::Duration kLongestPause = absl::Milliseconds(100);

}  // namespace

LinkClaim ClaimNewLink() {
  uint64_t id = 0;
  const std::string random = RandomBytes(sizeof(id));
  std::memcpy(&id, random.data(), sizeof(id));
  return {.link_id = std::max<uint64_t>(id, 1)};  // 0 means "none yet" in the header
}

StatusOr<std::shared_ptr<Connection>> SealedAfter(std::shared_ptr<Connection> connection,
                                                  std::string_view secret, Side side,
                                                  const EphemeralKey& own,
                                                  const ProofInput& input) {
  const bool dials = side == Side::kDialler;
  LH_ASSIGN_OR_RETURN(const std::string agreed,
                      own.Agree(dials ? input.listener_nonce : input.dialler_nonce));
  const std::string down = SealKeyOf(secret, agreed, Side::kDialler, input),
                    up = SealKeyOf(secret, agreed, Side::kListener, input);
  return SealConnection(std::move(connection), dials ? down : up, dials ? up : down);
}

void SendHandshakeFrame(Connection& connection, LinkKind kind, Lane lane, uint64_t link_id,
                        uint32_t credits, std::vector<std::byte> payload) {
  struct Frame {
    std::array<std::byte, wire::kLinkHeaderBytes> header;
    std::vector<std::byte> payload;
  };
  LinkHeader header;
  // The lowest version is the one that the other side is most likely to read.
  header.version = wire::kLinkVersionMin;
  header.kind = kind;
  header.lane = static_cast<uint8_t>(lane);
  header.credits = credits;
  header.link_id = link_id;
  header.payload_bytes = static_cast<uint32_t>(payload.size());
  // The connection reads both until it has sent them, which is after this call returns.
  auto frame = std::make_shared<Frame>();
  frame->payload = std::move(payload);
  wire::EncodeLinkHeader(header, frame->payload, {}, frame->header);
  connection.Send(frame->header, FrameView{.header = frame->payload, .body = {}},
                  [frame](const Status&) {});
}

class DialAttempt::LaneEvents : public ConnectionEvents {
 public:
  LaneEvents(std::shared_ptr<DialAttempt> attempt, Lane lane)
      : attempt_(std::move(attempt)), lane_(lane) {}
  void OnMessage(std::span<const std::byte> header, std::span<const std::byte> payload) override {
    attempt_->OnMessage(lane_, header, payload);
  }
  void OnClosed(const Status& reason) override { attempt_->Fail(reason, false); }

 private:
  const std::shared_ptr<DialAttempt> attempt_;
  const Lane lane_;
};

DialAttempt::DialAttempt(std::shared_ptr<EventLoop> loop, const DialOptions& options,
                         const LinkClaim& claim, Done done)
    : loop_(std::move(loop)),
      key_(options.key),
      secret_(options.secret),
      credits_(options.credits),
      sealed_(options.sealed),
      claim_(claim),
      started_(loop_->now()),
      done_(std::move(done)) {}

void DialAttempt::Start(Backend& backend, const std::string& address, MonoTime limit) {
  address_ = address;
  for (const Lane l : {Lane::kBulk, Lane::kControl}) {
    LaneState& state = lanes_[static_cast<size_t>(l)];
    StatusOr<std::shared_ptr<Connection>> connection = backend.Connect(address);
    if (!connection.ok()) {
      // No host becomes reachable by waiting if its address cannot be read.
      const bool final = absl::IsInvalidArgument(connection.status());
      loop_->Post([self = shared_from_this(), status = connection.status(), final] {
        self->Fail(status, final);
      });
      return;
    }
    state.connection = *std::move(connection);
    state.connection->SetEvents(std::make_shared<LaneEvents>(shared_from_this(), l));
    SendHello(l, {.stage = kStageIntroduce, .nonce = state.ephemeral.public_key()});
  }
  timer_ = loop_->AddTimer(limit, [self = shared_from_this()] {
    self->timer_.reset();
    self->Fail(absl::UnavailableError("no answer"), false);
  });
}

void DialAttempt::SendHello(Lane lane, const LinkHello& hello) {
  LinkHello full = hello;
  full.sealed = sealed_;
  full.version_min = VersionMin();
  full.version_max = wire::kLinkVersionMax;
  full.key = key_;
  full.attempt = claim_.attempt;
  full.received = claim_.received[static_cast<size_t>(lane)];
  SendHandshakeFrame(*lanes_[static_cast<size_t>(lane)].connection, LinkKind::kHello, lane,
                     claim_.link_id, credits_, EncodeHello(full));
}

void DialAttempt::OnMessage(Lane lane, std::span<const std::byte> header,
                            std::span<const std::byte> payload) {
  if (!done_) return;
  const StatusOr<LinkHeader> decoded = wire::DecodeLinkHeader(header, payload);
  if (!decoded.ok()) return Fail(decoded.status(), true);
  if (decoded->link_id != claim_.link_id || decoded->lane != static_cast<uint8_t>(lane)) {
    return Fail(absl::InvalidArgumentError("the answer belongs to another link"), false);
  }
  if (decoded->kind == LinkKind::kRefuse) {
    const StatusOr<LinkRefusal> refusal = DecodeRefusal(payload);
    if (!refusal.ok()) return Fail(refusal.status(), true);
    return Fail(Status(refusal->code, refusal->reason), !refusal->retry);
  }
  if (decoded->kind != LinkKind::kWelcome) {
    return Fail(InvalidArgument("expected a welcome, got a frame of kind {}",
                                static_cast<int>(decoded->kind)),
                true);
  }
  const StatusOr<LinkWelcome> welcome = DecodeWelcome(payload);
  if (!welcome.ok()) return Fail(welcome.status(), true);
  if (const Status status = HandleWelcome(lane, *decoded, *welcome); !status.ok()) {
    return Fail(status, true);
  }
  if (!lanes_[0].open || !lanes_[1].open) return;
  Finish(OpenedLink{.link_id = claim_.link_id,
                    .version = lanes_[0].version,
                    .attempt = claim_.attempt,
                    .peer_credits = peer_credits_,
                    .told = claim_.received,
                    .received = peer_received_,
                    .connections = {lanes_[0].opens, lanes_[1].opens},
                    .address = address_,
                    .handshake = loop_->now() - started_},
         false);
}

Status DialAttempt::HandleWelcome(Lane lane, const LinkHeader& header, const LinkWelcome& welcome) {
  LaneState& state = lanes_[static_cast<size_t>(lane)];
  if (welcome.stage == kStageProve) {
    if (state.version == 0 || state.open || header.credits == 0 || header.credits > kMaxCredits) {
      return absl::InvalidArgumentError("the welcome came out of turn or without credits");
    }
    state.open = true;
    if (lane == Lane::kBulk) peer_credits_ = header.credits;
    return absl::OkStatus();
  }
  if (state.version != 0 || welcome.version < wire::kLinkVersionMin ||
      welcome.version > wire::kLinkVersionMax) {
    return InvalidArgument("unexpected welcome with link version {}", welcome.version);
  }
  state.version = welcome.version;
  const ProofInput input{.lane = lane,
                         .link_id = claim_.link_id,
                         .version_min = VersionMin(),
                         .version_max = wire::kLinkVersionMax,
                         .version = welcome.version,
                         .key = key_,
                         .attempt = claim_.attempt,
                         .dialler_received = claim_.received[static_cast<size_t>(lane)],
                         .listener_received = welcome.received,
                         .dialler_nonce = state.ephemeral.public_key(),
                         .listener_nonce = welcome.nonce,
                         .sealed = sealed_};
  if (!ConstantTimeEqual(welcome.proof, Prove(secret_, Side::kListener, input))) {
    return PermissionDenied(
        "the listener does not know the secret of {}; its worker is of another run or "
        "was started with another plan",
        Describe(key_));
  }
  peer_received_[static_cast<size_t>(lane)] = welcome.received;
  // From here on the listener may open the link whatever becomes of this attempt.
  committed_ = true;
  SendHello(lane, {.stage = kStageProve,
                   .nonce = state.ephemeral.public_key(),
                   .proof = Prove(secret_, Side::kDialler, input)});
  state.opens = state.connection;
  if (!sealed_) return absl::OkStatus();
  LH_ASSIGN_OR_RETURN(
      state.opens, SealedAfter(state.connection, secret_, Side::kDialler, state.ephemeral, input));
  return absl::OkStatus();
}

void DialAttempt::Fail(const Status& status, bool final) {
  if (!done_) return;
  for (const LaneState& state : lanes_) {
    if (state.connection) state.connection->Close();
  }
  Finish(status, final);
}

void DialAttempt::Finish(StatusOr<OpenedLink> result, bool final) {
  if (timer_) loop_->CancelTimer(*timer_);
  timer_.reset();
  const Done done = std::exchange(done_, nullptr);
  // The events of each connection hold this attempt: without the reset neither would ever go.
  for (LaneState& state : lanes_) state.connection = state.opens = nullptr;
  done(std::move(result), final);
}

void DialAttempt::Cancel() {
  if (!done_) return;
  done_ = [](const StatusOr<OpenedLink>&, bool) {};
  Fail(absl::CancelledError("cancelled"), true);
}

Dialer::Dialer(std::shared_ptr<EventLoop> loop, Backend* backend, DialOptions options, Done done)
    : loop_(std::move(loop)),
      backend_(backend),
      options_(std::move(options)),
      started_(loop_->now()),
      done_(std::move(done)),
      pause_(kFirstPause) {
  SetAddresses(options_.addresses);
}

void Dialer::SetAddresses(const std::vector<std::string>& addresses) {
  addresses_.clear();
  for (const std::string& address : addresses) {
    addresses_.push_back({address, absl::UnavailableError("not tried"), false});
  }
  next_ = 0;
}

void Dialer::Readdress(const std::vector<std::string>& addresses) {
  SetAddresses(addresses);
  // The listener may have opened the link at the old address: the attempt ends first.
  if (committed()) return;
  if (attempt_) std::exchange(attempt_, nullptr)->Cancel();
  loop_->Post([self = shared_from_this()] { self->TryNext(); });
}

void Dialer::Start() {
  deadline_timer_ = loop_->AddTimer(options_.deadline, [self = shared_from_this()] {
    self->deadline_timer_.reset();
    self->GiveUp(absl::StatusCode::kDeadlineExceeded,
                 fmt::format("not open after {:.1f} s",
                             absl::ToDoubleSeconds(self->loop_->now() - self->started_)));
  });
  // Not from here: without an address it ends the dialling, and `done` must not run inside Start.
  loop_->Post([self = shared_from_this()] { self->TryNext(); });
}

void Dialer::TryNext() {
  if (!done_ || attempt_) return;
  StopTimer(&pause_timer_);
  while (next_ < addresses_.size() && addresses_[next_].final) ++next_;
  if (next_ < addresses_.size()) {
    attempt_ =
        std::make_shared<DialAttempt>(loop_, options_, options_.claim(),
                                      [self = shared_from_this(), address = addresses_[next_].text](
                                          StatusOr<OpenedLink> result, bool final) {
                                        self->OnAttempt(address, std::move(result), final);
                                      });
    attempt_->Start(*backend_, addresses_[next_].text,
                    std::min(options_.deadline, loop_->now() + options_.attempt_limit));
    return;
  }
  const auto refused = std::ranges::find_if(addresses_, &Address::final);
  if (std::ranges::all_of(addresses_, &Address::final)) {
    // With no address at all there is nothing to wait for either.
    GiveUp(refused == addresses_.end() ? absl::StatusCode::kInvalidArgument : refused->error.code(),
           "cannot be opened");
    return;
  }
  next_ = 0;
  pause_timer_ = loop_->AddTimer(loop_->now() + pause_, [self = shared_from_this()] {
    self->pause_timer_.reset();
    self->TryNext();
  });
  pause_ = std::min(2 * pause_, kLongestPause);
}

void Dialer::OnAttempt(const std::string& address, StatusOr<OpenedLink> result, bool final) {
  attempt_.reset();
  if (!done_) return;
  if (result.ok()) {
    const Done done = std::exchange(done_, nullptr);
    Cancel();
    done(std::move(result));
    return;
  }
  // Not there: it belongs to addresses that are out of use by now.
  if (const auto tried = std::ranges::find(addresses_, address, &Address::text);
      tried != addresses_.end()) {
    tried->error = result.status();
    tried->final = final;
    next_ = static_cast<size_t>(tried - addresses_.begin()) + 1;
  }
  // Not from here: the attempt is still on the stack.
  loop_->Post([self = shared_from_this()] { self->TryNext(); });
}

std::string Dialer::Errors() const {
  std::string errors;
  for (const Address& address : addresses_) {
    errors += fmt::format("; {}: {}", WithoutSecret(address.text), Message(address.error));
  }
  return errors;
}

void Dialer::GiveUp(absl::StatusCode code, std::string_view why) {
  if (!done_) return;
  const std::string message = fmt::format(
      "link of {}: {}{}", Describe(options_.key), why,
      addresses_.empty() ? std::string(": no address of the peer was given") : Errors());
  // The timers hold this dialer; they go before the caller hears of the end.
  const Done done = std::exchange(done_, nullptr);
  Cancel();
  done(Status(code, message));
}

void Dialer::StopTimer(std::optional<EventLoop::TimerId>* timer) {
  if (*timer) loop_->CancelTimer(**timer);
  timer->reset();
}

void Dialer::Cancel() {
  done_ = nullptr;
  StopTimer(&deadline_timer_);
  StopTimer(&pause_timer_);
  if (attempt_) std::exchange(attempt_, nullptr)->Cancel();
}

}  // namespace longhaul::transport::internal
