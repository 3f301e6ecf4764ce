#include "worker/pipeline/replica_port.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/clock.h"
#include "proto/wire/link_header.h"
#include "worker/pipeline/link_credits.h"
#include "worker/pipeline/tensor_assembler.h"

namespace longhaul::worker {
namespace {

using HeaderBytes = std::array<std::byte, wire::kTensorHeaderBytes>;
// Reserved before a message has arrived: its header is not to be trusted.
constexpr uint64_t kMostReservedBytes = uint64_t{64} << 20;

}  // namespace

struct ReplicaPort::Outgoing {
  std::vector<std::byte> message;
  std::vector<HeaderBytes> headers;
  wire::TensorHeader header;  // of its chunks, but for their places
  uint32_t next_chunk = 0;    // that the link lacks
};

std::shared_ptr<ReplicaPort> ReplicaPort::Create(ReplicaPortOptions options,
                                                 std::shared_ptr<EventQueue> events) {
  const std::shared_ptr<ReplicaPort> port(new ReplicaPort(std::move(options), std::move(events)));
  if (port->options_.turns) {
    port->options_.turns->CallWhenQuiet([weak = std::weak_ptr(port)] {
      const auto self = weak.lock();
      if (!self) return;
      const std::lock_guard lock(self->mutex_);
      self->Pump();
    });
  }
  return port;
}

ReplicaPort::ReplicaPort(ReplicaPortOptions options, std::shared_ptr<EventQueue> events)
    : EdgePort(options.on_health),
      options_(std::move(options)),
      run_tag_(wire::RunTag(options_.run)),
      events_(std::move(events)),
      most_chunks_(options_.most_chunks) {}

ReplicaPort::~ReplicaPort() {
  NoteReceiving(false);
}

void ReplicaPort::Attach(std::shared_ptr<transport::Link> link) {
  const std::lock_guard lock(mutex_);
  link_ = std::move(link);
}

void ReplicaPort::Close(Deadline deadline) {
  std::shared_ptr<transport::Link> link;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    link = link_;
    Pump();
  }
  if (link) link->Close(deadline);
}

// The lower cell number sends forward, as on the edge.
Direction ReplicaPort::SendDirection() const {
  return options_.own < options_.peer ? Direction::kForward : Direction::kBackward;
}

wire::TensorHeader ReplicaPort::HeaderFor(wire::TensorKind kind, Step step) const {
  wire::TensorHeader header;
  header.kind = kind;
  header.run = run_tag_;
  header.epoch = options_.epoch;
  header.step = step;
  header.replica = options_.own.replica;
  header.edge = options_.edge;
  header.direction = SendDirection();
  return header;
}

void ReplicaPort::Send(Step step, std::vector<std::byte> message) {
  auto outgoing = std::make_shared<Outgoing>();
  outgoing->message = std::move(message);
  const size_t bytes = outgoing->message.size();
  const size_t chunks = (bytes + kChunkBytes - 1) / kChunkBytes;
  outgoing->headers.resize(chunks);
  wire::TensorHeader header = HeaderFor(wire::TensorKind::kReplicaMessage, step);
  header.blob_bytes = bytes;
  header.chunks = static_cast<uint32_t>(chunks);
  // Numbered and queued under one lock, so that messages keep their order.
  const std::lock_guard lock(mutex_);
  if (!link_ || closed_) return;
  header.microbatch = Microbatch(sent_++);
  outgoing->header = header;
  use_.payload_bytes_sent += bytes + chunks * wire::kTensorHeaderBytes;
  if (chunks_under_way_ == 0) {
    busy_since_ = Now();
    if (options_.traffic != nullptr) options_.traffic->Begin();
  }
  chunks_under_way_ += chunks;
  waiting_.push_back(std::move(outgoing));
  Pump();
}

// After Close everything that was accepted goes to the link, which sends it before it ends.
void ReplicaPort::Pump() {
  const bool beside = options_.turns && options_.turns->busy();
  const uint64_t most = beside ? kChunksBesideTensors : most_chunks_;
  while (!waiting_.empty() && (closed_ || chunks_in_link_ < most)) GiveChunk();
}

void ReplicaPort::GiveChunk() {
  const std::shared_ptr<Outgoing> outgoing = waiting_.front();
  const uint32_t chunk = outgoing->next_chunk++;
  if (outgoing->next_chunk == outgoing->headers.size()) waiting_.pop_front();
  const size_t offset = chunk * kChunkBytes, bytes = outgoing->message.size();
  outgoing->header.chunk = chunk;
  outgoing->header.chunk_offset = offset;
  wire::EncodeTensorHeader(outgoing->header, outgoing->headers[chunk]);
  const auto body = std::span<const std::byte>(outgoing->message)
                        .subspan(offset, std::min(kChunkBytes, bytes - offset));
  ++chunks_in_link_;
  link_->Send(transport::Lane::kBulk, {outgoing->headers[chunk], body},
              // A failed send is the link's end; OnClosed says why.
              [self = shared_from_this(), outgoing](const Status&) { self->ChunkTaken(); });
}

void ReplicaPort::ChunkTaken() {
  const std::lock_guard lock(mutex_);
  --chunks_in_link_;
  Pump();
  if (--chunks_under_way_ > 0) return;
  use_.send_busy += Now() - busy_since_;
  if (options_.traffic != nullptr) options_.traffic->End();
}

void ReplicaPort::SendAgreement(wire::TensorKind kind, Step step,
                                const wire::StepMessage& message) {
  struct Buffers {
    HeaderBytes header;
    std::array<std::byte, wire::kStepMessageBytes> body;
  };
  auto buffers = std::make_shared<Buffers>();
  wire::TensorHeader header = HeaderFor(kind, step);
  header.blob_bytes = buffers->body.size();
  wire::EncodeTensorHeader(header, buffers->header);
  wire::EncodeStepMessage(message, buffers->body);
  std::shared_ptr<transport::Link> link;
  {
    const std::lock_guard lock(mutex_);
    link = link_;
    use_.payload_bytes_sent += wire::kTensorHeaderBytes + buffers->body.size();
  }
  if (link) {
    link->Send(transport::Lane::kControl, {buffers->header, buffers->body},
               [buffers](const Status&) {});
  }
}

PortUse ReplicaPort::TakeUse() {
  const std::lock_guard lock(mutex_);
  if (link_) {
    const transport::LinkStats stats = link_->stats();
    use_.link_bytes_sent = stats.link_bytes_sent - last_stats_.link_bytes_sent;
    use_.credit_wait = stats.credit_wait - last_stats_.credit_wait;
    last_stats_ = stats;
  }
  if (chunks_under_way_ > 0) {
    const MonoTime now = Now();
    use_.send_busy += now - busy_since_;
    busy_since_ = now;
  }
  return std::exchange(use_, {});
}

void ReplicaPort::OnFrame(transport::Lane lane, std::span<const std::byte> payload) {
  frames_received_.fetch_add(1, std::memory_order_relaxed);
  const Status status = HandleFrame(lane, payload);
  if (!status.ok()) {
    events_->Push(Failed{Annotate(status, fmt::format("frame from {}", ToString(options_.peer)))});
  }
}

Status ReplicaPort::HandleFrame(transport::Lane lane, std::span<const std::byte> payload) {
  if (payload.size() < wire::kTensorHeaderBytes) {
    return InvalidArgument("expected a tensor header of {} bytes, got {} bytes",
                           wire::kTensorHeaderBytes, payload.size());
  }
  LH_ASSIGN_OR_RETURN(const wire::TensorHeader header,
                      wire::DecodeTensorHeader(payload.first(wire::kTensorHeaderBytes)));
  if (header.run != run_tag_ || header.epoch != options_.epoch) return absl::OkStatus();
  if (header.edge != options_.edge || header.direction == SendDirection() ||
      header.replica != options_.peer.replica) {
    return InvalidArgument("expected edge {} from replica {}, got edge {} from replica {}",
                           options_.edge.value(), options_.peer.replica, header.edge.value(),
                           header.replica);
  }
  const auto body = payload.subspan(wire::kTensorHeaderBytes);
  switch (header.kind) {
    case wire::TensorKind::kReplicaMessage:
      if (lane == transport::Lane::kBulk) return HandleChunk(header, body);
      return absl::InvalidArgumentError("expected messages of replicas on the bulk lane");
    case wire::TensorKind::kNormUp:
    case wire::TensorKind::kStepControl: {
      LH_ASSIGN_OR_RETURN(const wire::StepMessage message, wire::DecodeStepMessage(body));
      const bool decides = header.kind == wire::TensorKind::kStepControl;
      if (decides != (options_.peer.replica == 0)) {
        return absl::InvalidArgumentError(
            "expected replica 0 to decide and the others to say their norms, got the opposite");
      }
      events_->Push(ReplicaAgrees{options_.peer.replica, header.step, message});
      return absl::OkStatus();
    }
    default:
      return InvalidArgument("a message of kind {} between replicas",
                             static_cast<int>(header.kind));
  }
}

Status ReplicaPort::HandleChunk(const wire::TensorHeader& header, std::span<const std::byte> body) {
  const uint64_t expected =
      std::min<uint64_t>(kChunkBytes, header.blob_bytes - header.chunk_offset);
  if (header.chunk != next_chunk_ || header.microbatch.value() != received_ ||
      header.chunk_offset != uint64_t{next_chunk_} * kChunkBytes || body.size() != expected ||
      header.blob_bytes > options_.most_message_bytes ||
      (next_chunk_ > 0 && header.blob_bytes != incoming_bytes_)) {
    return InvalidArgument(
        "expected chunk {} of message {}, up to {} bytes, got chunk {} of message {}, {} of {} "
        "bytes",
        next_chunk_, received_, options_.most_message_bytes, header.chunk,
        header.microbatch.value(), body.size(), header.blob_bytes);
  }
  if (next_chunk_ == 0) {
    incoming_bytes_ = header.blob_bytes;
    incoming_.reserve(std::min(header.blob_bytes, kMostReservedBytes));
    began_ = Now();
    NoteReceiving(true);
  }
  incoming_.insert(incoming_.end(), body.begin(), body.end());
  if (++next_chunk_ < header.chunks) return absl::OkStatus();
  NoteReceiving(false);
  if (incoming_.size() != header.blob_bytes) {
    return InvalidArgument(
        "expected a message of {} bytes, got {} in {} "
        "chunks",
        header.blob_bytes, incoming_.size(), header.chunks);
  }
  if (header.chunks >= LinkCredits::kChunksOfARate) {
    constexpr uint64_t kHeaderBytes = wire::kLinkHeaderBytes + wire::kTensorHeaderBytes;
    const std::lock_guard lock(mutex_);
    use_.received_bytes +=
        header.blob_bytes - kChunkBytes + (uint64_t{header.chunks} - 1) * kHeaderBytes;
    use_.receive_time += Now() - began_;
  }
  ++received_;
  next_chunk_ = 0;
  events_->Push(ReplicaSaid{options_.peer.replica, std::exchange(incoming_, {})});
  return absl::OkStatus();
}

void ReplicaPort::NoteReceiving(bool receiving) {
  if (std::exchange(receiving_, receiving) == receiving || options_.traffic == nullptr) return;
  if (receiving) {
    options_.traffic->Begin();
  } else {
    options_.traffic->End();
  }
}

std::shared_ptr<transport::Link> ReplicaPort::link() {
  const std::lock_guard lock(mutex_);
  return link_;
}

// The peer grants more credits after a break, so more chunks fit.
void ReplicaPort::OnHealed(absl::Duration away, uint64_t frames_resent) {
  {
    const std::lock_guard lock(mutex_);
    most_chunks_ = std::max(most_chunks_, transport::kDefaultCredits);
    Pump();
  }
  EdgePort::OnHealed(away, frames_resent);
}

void ReplicaPort::OnClosed(const Status& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(closed_, true)) return;
  }
  events_->Push(PeerGone{options_.edge, options_.peer, reason});
}

}  // namespace longhaul::worker
