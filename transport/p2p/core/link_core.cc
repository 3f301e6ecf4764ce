#include "transport/p2p/core/link_core.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "transport/p2p/core/hello.h"

namespace longhaul::transport::internal {
namespace {

using wire::LinkHeader;
using wire::LinkKind;

// A redial takes a few round trips, as the first handshake did. The limit leaves room for a busier
// or slower line, and on a dead line costs no more than this before the next try.
constexpr int kHandshakes = 4;
constexpr absl::Duration kShortestAttempt = absl::Milliseconds(250);
constexpr absl::Duration kLongestAttempt = absl::Seconds(3);
// A connection gets few frames ahead of what it sends. A frame is then checksummed or sealed just
// before it is sent, while its bytes are in the cache. And a side that has much to send reads
// between these batches: if it sealed all that it may send, the peer's frames would wait.
constexpr size_t kMostHanded = 4;
// So many frames a receiver takes at once: to wake for each one costs more than to check it. More
// would fall out of its cache.
constexpr size_t kMostFollowing = 4;

}  // namespace

LinkCore::LinkCore(std::shared_ptr<EventLoop> loop, Init init)
    : loop_(std::move(loop)),
      init_(std::move(init)),
      link_id_(init_.opened.link_id),
      version_(init_.opened.version),
      attempt_limit_(
          std::clamp(kHandshakes * init_.opened.handshake, kShortestAttempt, kLongestAttempt)),
      lanes_{LaneState(init_.opened.peer_credits, init_.options.credits),
             LaneState(kControlCredits, kControlCredits)},
      watch_(init_.options, loop_->now()) {}

Status LinkCore::Accept(Lane l, const FrameView& frame, Link::SendDone* done) {
  if (frame.size() > kMaxFramePayloadBytes) {
    return InvalidArgument(
        "a frame holds at most {} bytes, {} were given; send the message in chunks",
        kMaxFramePayloadBytes, frame.size());
  }
  const std::lock_guard lock(mutex_);
  if (!refuse_sends_.ok()) return refuse_sends_;
  ++stats_.frames_waiting;
  submitted_.push_back({l, frame, std::move(*done)});
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

void LinkCore::GrowCredits(uint32_t credits) {
  loop_->Post([self = shared_from_this(), credits] {
    ReceiveWindow& receive = self->lane(Lane::kBulk).receive;
    receive.Grow(credits);
    if (receive.TellDue()) self->TellCredits(Lane::kBulk);
  });
}

LinkStats LinkCore::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

std::string LinkCore::description() const {
  const std::lock_guard lock(mutex_);
  return description_;
}

void LinkCore::DrainSubmittedOnLoop() {
  std::vector<Submitted> submitted;
  {
    const std::lock_guard lock(mutex_);
    submitted.swap(submitted_);
  }
  for (Submitted& s : submitted) lane(s.lane).out.Push(s.view, std::move(s.done));
  // Frames accepted before Close are sent before the goodbyes. A peer that has said goodbye takes
  // no more.
  if (Over() || lane(Lane::kBulk).out.ends()) DropWaiting(reason_);
  PumpOnLoop();
}

void LinkCore::PumpOnLoop() {
  if (Over() || !lane_pair_ || !lane_pair_->peer_is_open) return;
  // Control first, so that urgent messages do not wait behind a burst of tensors.
  PumpLane(Lane::kControl);
  PumpLane(Lane::kBulk);
  TrackCreditWait();
}

void LinkCore::PumpSoon() {
  if (std::exchange(pump_posted_, true)) return;
  loop_->Post([self = shared_from_this()] {
    self->pump_posted_ = false;
    self->PumpOnLoop();
  });
}

void LinkCore::PumpLane(Lane l) {
  if (l == Lane::kBulk && lane_pair_->bulk_ended) return;
  Outbox& out = lane(l).out;
  while (lane_pair_->handed[static_cast<size_t>(l)] < kMostHanded) {
    const bool again = out.to_send_again() > 0;
    if (!out.under_way()) lane(l).progress_at = loop_->now();
    const Outbox::FramePtr frame = out.Take();
    if (!frame) return;
    SendHeld(l, frame, again);
  }
}

void LinkCore::SendHeld(Lane l, const Outbox::FramePtr& frame, bool again) {
  LinkHeader header;
  header.kind = frame->kind;
  header.lane = static_cast<uint8_t>(l);
  header.sequence = frame->sequence;
  if (version_ >= wire::kLinkVersionOfFollowing) {
    header.following = static_cast<uint8_t>(lane(l).out.Following(kMostFollowing));
  }
  if (frame->kind == LinkKind::kData) {
    const std::lock_guard lock(mutex_);
    if (again) {
      ++stats_.frames_resent;
    } else {
      ++stats_.frames_sent;
      stats_.payload_bytes_sent += frame->view.size();
    }
  }
  ++frame->under_way;
  ++lane_pair_->handed[static_cast<size_t>(l)];
  // Whether the connection could send it proves nothing: only the peer's acknowledgement ends a
  // frame.
  Transmit(l, header, frame->view, [this, frame, l, lane_pair = lane_pair_](const Status&) {
    --lane_pair->handed[static_cast<size_t>(l)];
    if (--frame->under_way == 0 && frame->taken) Finish({frame}, absl::OkStatus());
    if (lane_pair == lane_pair_) PumpSoon();
  });
}

void LinkCore::Finish(const std::vector<Outbox::FramePtr>& frames, const Status& status) {
  const auto data = std::ranges::count_if(frames, [](const auto& f) { return f->done != nullptr; });
  {
    const std::lock_guard lock(mutex_);
    stats_.frames_waiting -= static_cast<uint64_t>(data);
  }
  for (const Outbox::FramePtr& frame : frames) {
    if (const Link::SendDone done = std::exchange(frame->done, nullptr)) done(status);
  }
}

void LinkCore::SendOwn(LinkKind kind, Lane about, std::vector<std::byte> payload,
                       std::function<void()> done) {
  LinkHeader header;
  header.kind = kind;
  header.lane = static_cast<uint8_t>(about);
  const auto bytes = std::make_shared<std::vector<std::byte>>(std::move(payload));
  Transmit(Lane::kControl, header, {.header = *bytes, .body = {}},
           [bytes, done = std::move(done)](const Status&) { done(); });
}

void LinkCore::Transmit(Lane over, const LinkHeader& header, const FrameView& payload,
                        Connection::SendDone done) {
  struct Operation {
    std::array<std::byte, wire::kLinkHeaderBytes> header;
    Connection::SendDone done;
  };
  ReceiveWindow& receive = lanes_[header.lane].receive;
  LinkHeader full = header;
  full.version = version_;
  full.link_id = link_id_;
  full.acknowledgement = receive.handled();
  full.credits = receive.credits();
  full.payload_bytes = static_cast<uint32_t>(payload.size());
  if (over == Lane::kControl) receive.Told();
  auto operation = std::make_shared<Operation>();
  operation->done = std::move(done);
  wire::EncodeLinkHeader(full, payload.header, payload.body, operation->header, guard());
  {
    const std::lock_guard lock(mutex_);
    stats_.link_bytes_sent += wire::kLinkHeaderBytes + payload.size();
    if (header.kind == LinkKind::kHeartbeat) ++stats_.heartbeats_sent;
  }
  // The operation keeps the header's bytes, and this link, until the connection is done with them.
  lane_pair_->connections[static_cast<size_t>(over)]->Send(
      operation->header, payload,
      [self = shared_from_this(), operation](const Status& status) { operation->done(status); });
}

void LinkCore::SendHeartbeat() {
  // One at a time: if the network takes nothing, more heartbeats would only pile up.
  if (std::exchange(lane_pair_->heartbeat_under_way, true)) return;
  SendOwn(LinkKind::kHeartbeat, Lane::kControl, {},
          [lane_pair = lane_pair_] { lane_pair->heartbeat_under_way = false; });
}

void LinkCore::TellCredits(Lane about) {
  if (Over() || !lane_pair_ || !lane_pair_->peer_is_open) return;
  const auto l = static_cast<size_t>(about);
  // One at a time for each lane; the newest numbers follow once it is sent.
  if (std::exchange(lane_pair_->credits_under_way[l], true)) return;
  SendOwn(LinkKind::kCredit, about, {}, [this, lane_pair = lane_pair_, about] {
    lane_pair->credits_under_way[static_cast<size_t>(about)] = false;
    if (lane_pair == lane_pair_ && lane(about).receive.TellDue()) TellCredits(about);
  });
}

void LinkCore::OnMessage(const LanePairPtr& lane_pair, Lane over, std::span<const std::byte> header,
                         std::span<const std::byte> payload) {
  // A connection that was replaced may still deliver what was in flight.
  if (Over() || lane_pair != lane_pair_) return;
  StatusOr<LinkHeader> decoded = wire::DecodeLinkHeader(header, payload, guard());
  Status status = decoded.status();
  if (status.ok()) {
    {
      const std::lock_guard lock(mutex_);
      stats_.link_bytes_received += header.size() + payload.size();
    }
    status = HandleFrame(over, *decoded, payload);
  }
  if (!status.ok()) End(Annotate(status, description_), /*tell_peer=*/true);
}

Status LinkCore::HandleFrame(Lane over, const LinkHeader& header,
                             std::span<const std::byte> payload) {
  if (header.version != version_ || header.link_id != link_id_) {
    return InvalidArgument(
        "expected a frame of link {:016x} version {}, got one of link {:016x} version {}", link_id_,
        version_, header.link_id, header.version);
  }
  const auto about = static_cast<Lane>(header.lane);
  const bool credits = header.kind == LinkKind::kCredit;
  if (credits ? over != Lane::kControl : about != over) {
    return InvalidArgument("a frame of kind {} about lane {} came on lane {}",
                           static_cast<int>(header.kind), header.lane, static_cast<int>(over));
  }
  if (header.kind == LinkKind::kRefuse) {
    LH_ASSIGN_OR_RETURN(const LinkRefusal refusal, DecodeRefusal(payload));
    End(Unavailable("{}: the peer ended the link: {}", description_, refusal.reason),
        /*tell_peer=*/false);
    return absl::OkStatus();
  }
  if (header.kind != LinkKind::kData && !payload.empty()) {
    return InvalidArgument("a frame of kind {} has no payload, got {} bytes",
                           static_cast<int>(header.kind), payload.size());
  }
  Heard();
  LH_RETURN_IF_ERROR(CheckAcknowledgement(about, header));
  // The first frame on the control lane shows that the peer has opened its end: now frames may be
  // sent.
  if (over == Lane::kControl && !std::exchange(lane_pair_->peer_is_open, true)) Healed();
  switch (header.kind) {
    case LinkKind::kData:
    case LinkKind::kGoodbye:
      LH_RETURN_IF_ERROR(HandleSequenced(over, header, payload));
      break;
    case LinkKind::kHeartbeat: {
      const std::lock_guard lock(mutex_);
      ++stats_.heartbeats_received;
      break;
    }
    case LinkKind::kCredit:
      break;
    default:
      return InvalidArgument("a frame of kind {} has no place on an open link",
                             static_cast<int>(header.kind));
  }
  PumpOnLoop();
  EndIfAllIsSaid();
  return absl::OkStatus();
}

Status LinkCore::CheckAcknowledgement(Lane about, const LinkHeader& header) {
  std::vector<Outbox::FramePtr> finished;
  LaneState& state = lane(about);
  const uint64_t before = state.out.acknowledged();
  Status status = state.out.OnAcknowledgement(header.acknowledgement, header.credits, &finished);
  if (state.out.acknowledged() != before) {
    state.progress_at = loop_->now();
    state.stalls = 0;
  }
  if (!finished.empty()) Finish(finished, absl::OkStatus());
  return status;
}

Status LinkCore::HandleSequenced(Lane l, const LinkHeader& header,
                                 std::span<const std::byte> payload) {
  LaneState& state = lane(l);
  if (payload.size() > kMaxFramePayloadBytes) {
    return InvalidArgument("a frame holds at most {} bytes, {} came", kMaxFramePayloadBytes,
                           payload.size());
  }
  LH_ASSIGN_OR_RETURN(const bool is_new, state.receive.Accept(header.sequence));
  if (!is_new) {
    const std::lock_guard lock(mutex_);
    ++stats_.frames_repeated;
    return absl::OkStatus();
  }
  if (state.goodbye_received) {
    return absl::InvalidArgumentError("a frame came after the peer's goodbye");
  }
  if (header.kind == LinkKind::kData) {
    {
      const std::lock_guard lock(mutex_);
      ++stats_.frames_received;
      stats_.payload_bytes_received += payload.size();
    }
    init_.handler->OnFrame(l, payload);
    state.receive.Handled();
    if (state.receive.TellDue()) TellCredits(l);
    return absl::OkStatus();
  }
  state.receive.Handled();
  state.goodbye_received = true;
  TellCredits(l);
  if (GoodbyesReceived() && state_ == State::kOpen) {
    const Status reason = absl::UnavailableError(description_ + ": the peer closed the link");
    DropWaiting(reason);
    // The peer drops the connections once it has this side's goodbyes.
    StartClosing(reason, loop_->now() + kLinkLinger);
  }
  return absl::OkStatus();
}

void LinkCore::TrackCreditWait() {
  const bool waiting = lane_pair_ && !Over() && lane(Lane::kBulk).out.waits_for_credit();
  const MonoTime now = loop_->now();
  if (credit_wait_since_) {
    const std::lock_guard lock(mutex_);
    stats_.credit_wait += now - *credit_wait_since_;
  }
  credit_wait_since_ = waiting ? std::optional(now) : std::nullopt;
}

}  // namespace longhaul::transport::internal
