#include "transport/p2p/core/link_core.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "transport/p2p/core/hello.h"

namespace longhaul::transport::internal {
namespace {

using wire::LinkHeader;
using wire::LinkKind;

// The control lane has no credits: its messages are few, small and must not wait.
constexpr uint64_t kNoLimit = UINT64_MAX;

}  // namespace

// What a channel of the link calls; one a lane.
class LinkCore::LaneEvents : public ChannelEvents {
 public:
  LaneEvents(std::shared_ptr<LinkCore> link, Lane lane) : link_(std::move(link)), lane_(lane) {}
  void OnMessage(std::span<const std::byte> header, std::span<const std::byte> payload) override {
    link_->OnMessage(lane_, header, payload);
  }
  void OnClosed(const Status& reason) override { link_->OnChannelClosed(lane_, reason); }

 private:
  const std::shared_ptr<LinkCore> link_;
  const Lane lane_;
};

LinkCore::LinkCore(std::shared_ptr<EventLoop> loop, Init init)
    : loop_(std::move(loop)),
      init_(std::move(init)),
      description_(init_.backend + " " + channel(Lane::kBulk).Describe()),
      lanes_{LaneState(init_.peer_credits, init_.options.credits),
             LaneState(kNoLimit, init_.options.credits)},
      watch_(init_.options, Now()) {}

Status LinkCore::Accept(Lane l, const FrameView& frame, Link::SendDone* done) {
  if (frame.size() > kMaxFramePayloadBytes) {
    return absl::InvalidArgumentError(
        fmt::format("a frame holds at most {} bytes, {} were given; send the message in chunks",
                    kMaxFramePayloadBytes, frame.size()));
  }
  const std::lock_guard lock(mutex_);
  if (!refuse_sends_.ok()) return refuse_sends_;
  ++stats_.frames_waiting;
  submitted_.push_back({l, {frame, std::move(*done)}});
  if (submitted_.size() == 1) {  // else the task that takes them is on its way
    loop_->Post([self = shared_from_this()] { self->DrainSubmittedOnLoop(); });
  }
  return absl::OkStatus();
}

void LinkCore::Send(Lane l, const FrameView& frame, Link::SendDone done) {
  const Status status = Accept(l, frame, &done);
  if (!status.ok()) loop_->Post([status, done = std::move(done)] { done(status); });
}

void LinkCore::Close(Deadline deadline, bool drop_waiting) {
  {
    const std::lock_guard lock(mutex_);
    if (refuse_sends_.ok()) refuse_sends_ = absl::CancelledError("the link was closed");
  }
  loop_->Post([self = shared_from_this(), deadline, drop_waiting] {
    self->CloseOnLoop(deadline, drop_waiting);
  });
}

LinkStats LinkCore::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void LinkCore::StartOnLoop() {
  LH_CHECK(loop_->InLoop(), "links live on their loop");
  for (const Lane l : {Lane::kBulk, Lane::kControl}) {
    channel(l).SetEvents(std::make_shared<LaneEvents>(shared_from_this(), l));
  }
  if (init_.peer_is_open) {
    // Tells the listening side that this end is open.
    heartbeat_under_way_ = true;
    SendOwn(LinkKind::kHeartbeat, Lane::kControl, Lane::kControl,
            [this](const Status&) { heartbeat_under_way_ = false; });
  }
  ArmTick();
}

void LinkCore::DrainSubmittedOnLoop() {
  std::vector<Submitted> submitted;
  {
    const std::lock_guard lock(mutex_);
    submitted.swap(submitted_);
  }
  for (Submitted& s : submitted) lane(s.lane).queue.push_back(std::move(s.waiting));
  if (state_ >= State::kEnding || (state_ == State::kClosing && !closed_here_)) {
    DropQueues(reason_);
  }
  PumpOnLoop();
}

void LinkCore::CloseOnLoop(Deadline deadline, bool drop_waiting) {
  if (state_ >= State::kEnding || (state_ == State::kClosing && !drop_waiting)) return;
  DrainSubmittedOnLoop();
  if (drop_waiting) DropQueues(absl::CancelledError("the link was closed on this side"));
  if (state_ == State::kClosing) {
    ArmCloseTimer(deadline.time());
    PumpOnLoop();
    return;
  }
  closed_here_ = true;
  StartClosing(absl::CancelledError("the link was closed on this side"), deadline.time());
}

void LinkCore::ArmCloseTimer(MonoTime time) {
  if (close_timer_) loop_->CancelTimer(*close_timer_);
  close_timer_ = loop_->AddTimer(time, [self = shared_from_this()] {
    self->close_timer_.reset();
    self->End(self->reason_);
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
  PumpOnLoop();
}

void LinkCore::PumpOnLoop() {
  if (state_ >= State::kEnding || !init_.peer_is_open) return;
  // Control first, so that what is urgent is handed over before a burst of tensors.
  PumpLane(Lane::kControl);
  PumpLane(Lane::kBulk);
  TrackCreditWait();
}

void LinkCore::PumpLane(Lane l) {
  LaneState& state = lane(l);
  while (!state.queue.empty() && state.send.MaySend()) {
    Waiting waiting = std::move(state.queue.front());
    state.queue.pop_front();
    SendData(l, std::move(waiting));
  }
  if (state_ == State::kClosing && state.queue.empty() && !state.goodbye_sent) {
    state.goodbye_sent = true;
    SendOwn(LinkKind::kGoodbye, l, l, nullptr);
  }
}

void LinkCore::SendData(Lane l, Waiting waiting) {
  LinkHeader header;
  header.kind = LinkKind::kData;
  header.lane = static_cast<uint8_t>(l);
  header.sequence = lane(l).send.Take();
  const size_t bytes = waiting.frame.size();
  {
    const std::lock_guard lock(mutex_);
    ++stats_.frames_sent;
    stats_.payload_bytes_sent += bytes;
  }
  Transmit(l, header, waiting.frame, [this, done = std::move(waiting.done)](const Status& status) {
    {
      const std::lock_guard lock(mutex_);
      --stats_.frames_waiting;
    }
    done(status.ok() || reason_.ok() ? status : reason_);
  });
}

void LinkCore::SendOwn(LinkKind kind, Lane over, Lane about, Link::SendDone done) {
  LinkHeader header;
  header.kind = kind;
  header.lane = static_cast<uint8_t>(about);
  Transmit(over, header, {}, std::move(done));
}

void LinkCore::Transmit(Lane over, const LinkHeader& header, const FrameView& payload,
                        Link::SendDone done) {
  const ReceiveWindow& receive = lanes_[header.lane].receive;
  LinkHeader full = header;
  full.version = init_.version;
  full.link_id = init_.link_id;
  full.acknowledgement = receive.handled();
  full.credits = receive.credits();
  full.payload_bytes = static_cast<uint32_t>(payload.size());
  auto operation = std::make_shared<Operation>();
  operation->done = std::move(done);
  wire::EncodeLinkHeader(full, payload.header, payload.body, operation->header);
  {
    const std::lock_guard lock(mutex_);
    stats_.link_bytes_sent += wire::kLinkHeaderBytes + payload.size();
    if (header.kind == LinkKind::kHeartbeat) ++stats_.heartbeats_sent;
  }
  // The operation keeps the header's bytes, and this link, until the channel is done with them.
  channel(over).Send(operation->header, payload,
                     [self = shared_from_this(), operation](const Status& status) {
                       if (operation->done) operation->done(status);
                     });
}

void LinkCore::TellCredits() {
  ReceiveWindow& receive = lane(Lane::kBulk).receive;
  if (credits_under_way_ || state_ >= State::kEnding) return;
  receive.Told();
  credits_under_way_ = true;
  SendOwn(LinkKind::kCredit, Lane::kControl, Lane::kBulk, [this](const Status& status) {
    credits_under_way_ = false;
    if (status.ok() && lane(Lane::kBulk).receive.TellDue()) TellCredits();
  });
}

void LinkCore::OnMessage(Lane over, std::span<const std::byte> header,
                         std::span<const std::byte> payload) {
  if (state_ >= State::kEnding) return;
  StatusOr<LinkHeader> decoded = wire::DecodeLinkHeader(header, payload);
  Status status = decoded.status();
  if (status.ok()) {
    {
      const std::lock_guard lock(mutex_);
      stats_.link_bytes_received += header.size() + payload.size();
    }
    Heard();
    status = HandleFrame(over, *decoded, payload);
  }
  if (!status.ok()) End(Annotate(status, description_));
}

void LinkCore::Heard() {
  const bool healthy = watch_.Heard(Now());
  {
    const std::lock_guard lock(mutex_);
    stats_.longest_silence = watch_.longest_silence();
  }
  if (healthy) init_.handler->OnHealthy();
}

Status LinkCore::HandleFrame(Lane over, const LinkHeader& header,
                             std::span<const std::byte> payload) {
  if (header.version != init_.version || header.link_id != init_.link_id) {
    return absl::InvalidArgumentError(fmt::format(
        "expected a frame of link {:016x} version {}, got one of link {:016x} version {}",
        init_.link_id, init_.version, header.link_id, header.version));
  }
  const auto about = static_cast<Lane>(header.lane);
  const bool credits = header.kind == LinkKind::kCredit;
  if (credits ? over != Lane::kControl : about != over) {
    return absl::InvalidArgumentError(
        fmt::format("a frame of kind {} about lane {} came on lane {}",
                    static_cast<int>(header.kind), header.lane, static_cast<int>(over)));
  }
  if (header.kind != LinkKind::kData && !payload.empty()) {
    return absl::InvalidArgumentError(fmt::format("a frame of kind {} has no payload, got {} bytes",
                                                  static_cast<int>(header.kind), payload.size()));
  }
  LH_RETURN_IF_ERROR(lane(about).send.OnAcknowledgement(header.acknowledgement, header.credits));
  if (over == Lane::kControl) init_.peer_is_open = true;
  Status status;
  switch (header.kind) {
    case LinkKind::kData:
      status = HandleData(over, header, payload);
      break;
    case LinkKind::kHeartbeat: {
      const std::lock_guard lock(mutex_);
      ++stats_.heartbeats_received;
      break;
    }
    case LinkKind::kCredit:
      break;
    case LinkKind::kGoodbye:
      HandleGoodbye(over);
      break;
    default:
      status = absl::InvalidArgumentError(fmt::format(
          "a frame of kind {} has no place on an open link", static_cast<int>(header.kind)));
  }
  if (status.ok()) PumpOnLoop();
  return status;
}

Status LinkCore::HandleData(Lane l, const LinkHeader& header, std::span<const std::byte> payload) {
  LaneState& state = lane(l);
  if (payload.size() > kMaxFramePayloadBytes) {
    return absl::InvalidArgumentError(fmt::format("a frame holds at most {} bytes, {} came",
                                                  kMaxFramePayloadBytes, payload.size()));
  }
  if (state.goodbye_received) {
    return absl::InvalidArgumentError("a frame came after the peer's goodbye");
  }
  LH_RETURN_IF_ERROR(state.receive.Accept(header.sequence));
  {
    const std::lock_guard lock(mutex_);
    ++stats_.frames_received;
    stats_.payload_bytes_received += payload.size();
  }
  init_.handler->OnFrame(l, payload);
  state.receive.Handled();
  if (l == Lane::kBulk && state.receive.TellDue()) TellCredits();
  return absl::OkStatus();
}

void LinkCore::HandleGoodbye(Lane over) {
  lane(over).goodbye_received = true;
  if (!lane(Lane::kBulk).goodbye_received || !lane(Lane::kControl).goodbye_received) return;
  if (state_ == State::kClosing) {
    DropQueues(reason_);  // nobody is left to take them
    End(reason_);
    return;
  }
  const Status reason = absl::UnavailableError(description_ + ": the peer closed the link");
  DropQueues(reason);
  // The peer drops the channels when it has our goodbyes.
  StartClosing(reason, Now() + kLinkLinger);
}

void LinkCore::ArmTick() {
  tick_due_ = Now() + init_.options.heartbeat_interval;
  tick_timer_ = loop_->AddTimer(tick_due_, [self = shared_from_this()] {
    self->tick_timer_.reset();
    self->Tick();
  });
}

void LinkCore::Tick() {
  if (state_ >= State::kEnding) return;
  const MonoTime now = Now();
  // A loop that was held up (by a handler, by a busy machine) has signs of life still to read.
  const absl::Duration late = now - tick_due_;
  const absl::Duration stalled =
      late > init_.options.heartbeat_interval ? late : absl::ZeroDuration();
  switch (watch_.Tick(now, stalled)) {
    case PeerWatch::Verdict::kNone:
      break;
    case PeerWatch::Verdict::kSuspect:
      init_.handler->OnSuspect(watch_.Silence(now));
      break;
    case PeerWatch::Verdict::kGone:
      End(absl::UnavailableError(
          fmt::format("{}: no sign of life of the peer for {:.1f} s (limit {:.1f} s)", description_,
                      absl::ToDoubleSeconds(watch_.Silence(now)),
                      absl::ToDoubleSeconds(init_.options.peer_timeout))));
      return;
  }
  // One at a time: where the network takes nothing, more of them would only pile up.
  if (init_.peer_is_open && !heartbeat_under_way_) {
    heartbeat_under_way_ = true;
    SendOwn(LinkKind::kHeartbeat, Lane::kControl, Lane::kControl,
            [this](const Status&) { heartbeat_under_way_ = false; });
    if (lane(Lane::kBulk).receive.TellPending()) TellCredits();
  }
  TrackCreditWait();
  ArmTick();
}

void LinkCore::TrackCreditWait() {
  const bool waiting = state_ < State::kEnding && !lane(Lane::kBulk).queue.empty();
  const MonoTime now = Now();
  if (credit_wait_since_) {
    const std::lock_guard lock(mutex_);
    stats_.credit_wait += now - *credit_wait_since_;
  }
  credit_wait_since_ = waiting ? std::optional(now) : std::nullopt;
}

void LinkCore::DropQueues(const Status& reason) {
  for (LaneState& state : lanes_) {
    std::deque<Waiting> queue;
    queue.swap(state.queue);
    {
      const std::lock_guard lock(mutex_);
      stats_.frames_waiting -= queue.size();
    }
    for (Waiting& waiting : queue) waiting.done(reason);
  }
}

void LinkCore::End(const Status& reason) {
  if (state_ >= State::kEnding) return;
  state_ = State::kEnding;
  reason_ = reason;
  {
    const std::lock_guard lock(mutex_);
    if (refuse_sends_.ok()) refuse_sends_ = reason;
  }
  for (auto* timer : {&tick_timer_, &close_timer_}) {
    if (*timer) loop_->CancelTimer(**timer);
    timer->reset();
  }
  DrainSubmittedOnLoop();
  TrackCreditWait();
  DropQueues(reason);
  for (const Lane l : {Lane::kBulk, Lane::kControl}) {
    if (!lane(l).channel_closed) channel(l).Close();
  }
  // Never inside what caused it: a handler's frame may be on the stack.
  loop_->Post([self = shared_from_this()] { self->FinishIfClosed(); });
}

void LinkCore::OnChannelClosed(Lane l, const Status& reason) {
  lane(l).channel_closed = true;
  if (state_ == State::kOpen) {
    End(absl::UnavailableError(
        fmt::format("{}: the connection broke: {}", description_, Message(reason))));
  } else if (state_ == State::kClosing) {
    End(reason_);
  } else {
    FinishIfClosed();
  }
}

void LinkCore::FinishIfClosed() {
  if (state_ != State::kEnding) return;
  for (const LaneState& state : lanes_) {
    if (!state.channel_closed) return;
  }
  state_ = State::kClosed;
  const std::shared_ptr<LinkCore> self = shared_from_this();
  const std::shared_ptr<LinkHandler> handler = std::move(init_.handler);
  handler->OnClosed(reason_);
  if (init_.on_gone) std::exchange(init_.on_gone, nullptr)(this);
}

}  // namespace longhaul::transport::internal
