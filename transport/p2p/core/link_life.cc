// The life of a link: its connections, the watch over its peer, and its end.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "transport/p2p/core/link_core.h"

namespace longhaul::transport::internal {
namespace {

using wire::LinkKind;

// A connection that breaks this soon is not replaced at once, as something on the way may break
// every new one.
constexpr absl::Duration kShortLife = absl::Seconds(1);
constexpr absl::Duration kRedialPause = absl::Milliseconds(250);
// Each stall doubles the time for the next connection: up to 17 minutes at a peer_timeout of 1 s.
constexpr int kMostStalls = 10;

}  // namespace

// Events of one lane's connection.
class LinkCore::LaneEvents : public ConnectionEvents {
 public:
  LaneEvents(std::shared_ptr<LinkCore> link, LanePairPtr lane_pair, Lane lane)
      : link_(std::move(link)), lane_pair_(std::move(lane_pair)), lane_(lane) {}
  void OnMessage(std::span<const std::byte> header, std::span<const std::byte> payload) override {
    link_->OnMessage(lane_pair_, lane_, header, payload);
  }
  void OnClosed(const Status& reason) override {
    link_->OnConnectionClosed(lane_pair_, lane_, reason);
  }

 private:
  const std::shared_ptr<LinkCore> link_;
  const LanePairPtr lane_pair_;
  const Lane lane_;
};

void LinkCore::StartOnLoop() {
  LH_CHECK(loop_->InLoop(), "links live on their loop");
  const OpenedLink opened = std::exchange(init_.opened, {});
  Connect(opened, /*dialled=*/init_.redial.has_value());
  ArmTick();
}

Received LinkCore::ReceivedOnLoop() const {
  return {lanes_[0].receive.handled(), lanes_[1].receive.handled()};
}

void LinkCore::Connect(const OpenedLink& opened, bool dialled) {
  lane_pair_ = std::make_shared<LanePair>();
  lane_pair_->connections = opened.connections;
  // The dialling side finished the handshake last, so it knows that the listener is open.
  lane_pair_->peer_is_open = dialled;
  connected_at_ = loop_->now();
  connections_open_ += kLanes;
  for (const Lane l : {Lane::kBulk, Lane::kControl}) {
    opened.connections[static_cast<size_t>(l)]->SetEvents(
        std::make_shared<LaneEvents>(shared_from_this(), lane_pair_, l));
  }
  {
    const std::lock_guard lock(mutex_);
    description_ = init_.backend + " " + lane_pair_->connections[0]->Describe();
  }
  if (dialled) SendHeartbeat();  // tells the listening side that this end is open
}

void LinkCore::ResumeOnLoop(OpenedLink opened) {
  const auto refuse = [&] {
    for (const auto& connection : opened.connections) connection->Close();
  };
  if (Over()) return refuse();
  std::vector<Outbox::FramePtr> finished;
  Status status = opened.version == version_
                      ? absl::OkStatus()
                      : absl::InvalidArgumentError("the peer came back with another version");
  for (const Lane l : {Lane::kBulk, Lane::kControl}) {
    if (!status.ok()) break;
    status =
        lane(l).out.Resume(opened.received[static_cast<size_t>(l)],
                           l == Lane::kBulk ? opened.peer_credits : kControlCredits, &finished);
  }
  if (!status.ok()) {
    refuse();
    return End(Annotate(status, description_), /*tell_peer=*/true);
  }
  // The peer has come back by itself, so this side stops dialling.
  StopRedial();
  if (!away_since_) away_since_ = watch_.last_heard();
  DropConnection();
  for (const Lane l : {Lane::kBulk, Lane::kControl}) {
    lane(l).receive.Resume(opened.told[static_cast<size_t>(l)]);
  }
  watch_.Heard(loop_->now());
  {
    const std::lock_guard lock(mutex_);
    ++stats_.reconnects;
    stats_.longest_silence = watch_.longest_silence();
  }
  Connect(opened, /*dialled=*/init_.redial.has_value());
  Finish(finished, absl::OkStatus());
  if (lane_pair_->peer_is_open) Healed();
  PumpOnLoop();
}

void LinkCore::OnConnectionClosed(const LanePairPtr& lane_pair, Lane lane, const Status& reason) {
  --connections_open_;
  if (Over()) {
    // The peer has gone as well, so there is nobody to send a last word to.
    DropConnection();
    FinishIfClosed();
  } else if (lane_pair == lane_pair_) {
    const Status why = Unavailable("the connection broke: {}", Message(reason));
    // A peer that ends the link says so on the control connection and closes both, and the end of
    // the bulk connection may come first. A side that dials hears the same when it comes back; this
    // side would wait for the peer in vain.
    if (lane == Lane::kControl || init_.redial || state_ != State::kOpen) return Lose(why);
    lane_pair->bulk_ended = true;
    loop_->AddTimer(loop_->now() + kLinkLinger, [self = shared_from_this(), lane_pair, why] {
      if (lane_pair == self->lane_pair_) self->Lose(why);
    });
  }
}

void LinkCore::DropConnection() {
  const LanePairPtr lane_pair = std::exchange(lane_pair_, nullptr);
  if (!lane_pair) return;
  for (const auto& connection : lane_pair->connections) connection->Close();
}

void LinkCore::Lose(const Status& why) {
  if (!away_since_) away_since_ = watch_.last_heard();
  lost_why_ = why;
  DropConnection();
  TrackCreditWait();
  if (state_ == State::kClosing && GoodbyesReceived()) {
    End(reason_, /*tell_peer=*/false);  // both said goodbye; the peer dropped the connections
    return;
  }
  init_.handler->OnLost(why);
  StartRedial();
}

void LinkCore::StartRedial() {
  if (!init_.redial || dialer_ || redial_timer_) return;
  const MonoTime now = loop_->now();
  const MonoTime time = now - connected_at_ < kShortLife ? now + kRedialPause : now;
  // By a timer in any case, to leave the stack of what just broke.
  redial_timer_ = loop_->AddTimer(time, [self = shared_from_this()] {
    self->redial_timer_.reset();
    DialOptions options = *self->init_.redial;
    options.attempt_limit = self->attempt_limit_;
    options.claim = [self] {
      return LinkClaim{.link_id = self->link_id_,
                       .attempt = ++self->attempts_,
                       .received = self->ReceivedOnLoop()};
    };
    self->dialer_ = std::make_shared<Dialer>(
        self->loop_, self->init_.dial_over, std::move(options),
        [self](StatusOr<OpenedLink> opened) { self->OnRedialled(std::move(opened)); });
    self->dialer_->Start();
  });
}

void LinkCore::ReaddressOnLoop(const std::vector<std::string>& addresses) {
  if (Over() || !init_.redial) return;
  init_.redial->addresses = addresses;
  if (dialer_) dialer_->Readdress(addresses);
}

void LinkCore::StopRedial() {
  if (redial_timer_) loop_->CancelTimer(*redial_timer_);
  redial_timer_.reset();
  if (dialer_) std::exchange(dialer_, nullptr)->Cancel();
}

void LinkCore::OnRedialled(StatusOr<OpenedLink> opened) {
  dialer_.reset();
  if (opened.ok()) {
    ResumeOnLoop(*std::move(opened));
  } else {
    End(Unavailable("{}: {}; coming back: {}", description_,
                    lost_why_.ok() ? "the peer fell silent" : Message(lost_why_),
                    Message(opened.status())),
        /*tell_peer=*/false);
  }
}

void LinkCore::Heard() {
  const absl::Duration longest = watch_.longest_silence();
  const bool ends_suspicion = watch_.Heard(loop_->now());
  if (watch_.longest_silence() != longest) {
    const std::lock_guard lock(mutex_);
    stats_.longest_silence = watch_.longest_silence();
  }
  // A committed attempt may have changed the listener's state already, so it is waited for.
  if ((dialer_ && !dialer_->committed()) || redial_timer_) StopRedial();
  if (ends_suspicion && std::exchange(suspect_told_, false) && !away_since_)
    init_.handler->OnHealthy();
}

void LinkCore::Healed() {
  if (!away_since_) return;
  const absl::Duration away = loop_->now() - *std::exchange(away_since_, std::nullopt);
  lost_why_ = absl::OkStatus();
  suspect_told_ = false;
  init_.handler->OnHealed(away, lanes_[0].out.to_send_again() + lanes_[1].out.to_send_again());
}

void LinkCore::ArmTick() {
  tick_due_ = loop_->now() + init_.options.heartbeat_interval;
  tick_timer_ = loop_->AddTimer(tick_due_, [self = shared_from_this()] {
    self->tick_timer_.reset();
    self->Tick();
  });
}

void LinkCore::Tick() {
  if (Over()) return;
  const MonoTime now = loop_->now();
  // A loop that was held up (by a handler or a busy machine) has signs of life still to read.
  const absl::Duration late = now - tick_due_;
  const absl::Duration stalled =
      late > init_.options.heartbeat_interval ? late : absl::ZeroDuration();
  switch (watch_.Tick(now, stalled)) {
    case PeerWatch::Verdict::kNone:
      break;
    case PeerWatch::Verdict::kSuspect:
      if (lane_pair_) {  // else it is known to be lost
        suspect_told_ = true;
        init_.handler->OnSuspect(watch_.Silence(now));
      }
      break;
    case PeerWatch::Verdict::kGone:
      End(Gone(), /*tell_peer=*/true);
      return;
  }
  CheckProgress(now, stalled);
  // The old connection may recover, but TCP retries ever more rarely after a cut.
  if (watch_.suspect()) StartRedial();
  if (lane_pair_ && lane_pair_->peer_is_open) {
    SendHeartbeat();
    if (lane(Lane::kBulk).receive.TellPending()) TellCredits(Lane::kBulk);
  }
  TrackCreditWait();
  ArmTick();
}

// One of the two connections may be dead alone, for example forgotten by a middlebox, while the
// other shows that the peer lives. A slow line gets more time with each connection that moved
// nothing.
void LinkCore::CheckProgress(MonoTime now, absl::Duration stalled) {
  if (!lane_pair_) return;
  for (LaneState& state : lanes_) {
    // A peer that is silent on both lanes is the watch's business.
    state.progress_at = watch_.suspect() ? now : std::min(now, state.progress_at + stalled);
    const absl::Duration waited = now - state.progress_at;
    const absl::Duration limit = init_.options.peer_timeout * (1 << state.stalls);
    if (!state.out.under_way() || waited < limit) continue;
    state.stalls = std::min(state.stalls + 1, kMostStalls);
    return Lose(Unavailable("the peer lives, but took nothing of what was sent for {:.1f} s",
                            absl::ToDoubleSeconds(waited)));
  }
}

Status LinkCore::Gone() const {
  const double limit = absl::ToDoubleSeconds(init_.options.peer_timeout);
  if (lost_why_.ok()) {
    return Unavailable("{}: no sign of life of the peer for {:.1f} s (limit {:.1f} s){}",
                       description_, absl::ToDoubleSeconds(watch_.Silence(loop_->now())), limit,
                       dialer_ ? dialer_->Errors() : "");
  }
  return Unavailable(
      "{}: {}; {} within {:.1f} s{}", description_, Message(lost_why_),
      init_.redial ? "it could not be made again" : "the peer, which dials, did not come back",
      limit, dialer_ ? dialer_->Errors() : "");
}

bool LinkCore::GoodbyesReceived() const {
  return lanes_[0].goodbye_received && lanes_[1].goodbye_received;
}

void LinkCore::CloseOnLoop(Deadline deadline, bool drop_waiting) {
  if (Over() || (state_ == State::kClosing && !drop_waiting)) return;
  DrainSubmittedOnLoop();
  const Status reason = absl::CancelledError("the link was closed on this side");
  if (drop_waiting) DropWaiting(reason);
  if (state_ == State::kClosing) {
    ArmCloseTimer(deadline.time());
    PumpOnLoop();
    return;
  }
  StartClosing(reason, deadline.time());
}

void LinkCore::ArmCloseTimer(MonoTime time) {
  if (close_timer_) loop_->CancelTimer(*close_timer_);
  close_timer_ = loop_->AddTimer(time, [self = shared_from_this()] {
    self->close_timer_.reset();
    self->End(self->reason_, /*tell_peer=*/true);
  });
}

void LinkCore::StartClosing(const Status& reason, MonoTime limit) {
  state_ = State::kClosing;
  reason_ = reason;
  {
    const std::lock_guard lock(mutex_);
    if (refuse_sends_.ok()) refuse_sends_ = reason;
  }
  ArmCloseTimer(limit);
  for (LaneState& state : lanes_) state.out.PushGoodbye();
  PumpOnLoop();
}

void LinkCore::EndIfAllIsSaid() {
  if (state_ == State::kClosing && GoodbyesReceived() && lanes_[0].out.empty() &&
      lanes_[1].out.empty()) {
    End(reason_, /*tell_peer=*/true);
  }
}

void LinkCore::DropWaiting(const Status& reason) {
  for (LaneState& state : lanes_) Finish(state.out.DropWaiting(), reason);
}

void LinkCore::End(const Status& why, bool tell_peer) {
  if (Over()) return;
  // An error while the link closes is no news.
  const Status reason = state_ == State::kClosing ? reason_ : why;
  state_ = State::kEnding;
  reason_ = reason;
  {
    const std::lock_guard lock(mutex_);
    if (refuse_sends_.ok()) refuse_sends_ = reason;
  }
  StopRedial();
  for (auto* timer : {&tick_timer_, &close_timer_}) {
    if (*timer) loop_->CancelTimer(**timer);
    timer->reset();
  }
  if (init_.on_ending) std::exchange(init_.on_ending, nullptr)(this);
  DrainSubmittedOnLoop();
  TrackCreditWait();
  DropWaiting(reason);
  if (tell_peer && lane_pair_ && lane_pair_->peer_is_open) {
    SayLastWord();
  } else {
    DropConnection();
  }
  // Posted, because a handler's frame may be on the stack.
  loop_->Post([self = shared_from_this()] { self->FinishIfClosed(); });
}

void LinkCore::SayLastWord() {
  const auto drop = [self = shared_from_this()] { self->DropConnection(); };
  if (GoodbyesReceived()) {
    // The peer still waits for these acknowledgements.
    SendOwn(LinkKind::kCredit, Lane::kBulk, {}, [] {});
    SendOwn(LinkKind::kCredit, Lane::kControl, {}, drop);
  } else {
    const bool closed = absl::IsCancelled(reason_);
    SendOwn(LinkKind::kRefuse, Lane::kControl,
            EncodeRefusal({.code = reason_.code(),
                           .reason = closed ? std::string("closed on its side")
                                            : std::string(Message(reason_))}),
            drop);
  }
  // If the network takes nothing, nobody waits for it.
  loop_->AddTimer(loop_->now() + kLinkLinger, drop);
}

void LinkCore::FinishIfClosed() {
  if (state_ != State::kEnding || lane_pair_ || connections_open_ != 0) return;
  state_ = State::kClosed;
  // Every `done` before OnClosed, as promised to callers.
  for (LaneState& state : lanes_) Finish(state.out.DropAll(), reason_);
  const std::shared_ptr<LinkCore> self = shared_from_this();
  const std::shared_ptr<LinkHandler> handler = std::move(init_.handler);
  handler->OnClosed(reason_);
  if (init_.on_gone) std::exchange(init_.on_gone, nullptr)(this);
}

}  // namespace longhaul::transport::internal
