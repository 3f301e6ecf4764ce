#include "worker/pipeline/replica_port.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/clock.h"
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
  std::shared_ptr<ReplicaPort> port(new ReplicaPort(std::move(options), std::move(events)));
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

// The end with the lower cell id sends forward, as the edge's direction says.
ReplicaPort::ReplicaPort(ReplicaPortOptions options, std::shared_ptr<EventQueue> events)
    : EdgePort({.stamp = options.stamp,
                .epoch = options.epoch,
                .edge = options.edge,
                .peer = options.peer,
                .replica = options.own.replica,
                .sends = options.own < options.peer ? Direction::kForward : Direction::kBackward,
                .credits = options.credits,
                .traffic = options.traffic,
                .on_health = options.on_health},
               std::move(events)),
      options_(std::move(options)),
      most_chunks_(options_.most_chunks) {}

void ReplicaPort::Close(Deadline deadline) {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    Pump();
  }
  EdgePort::Close(deadline);
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
  BeginChunks(bytes, chunks);
  waiting_.push_back(std::move(outgoing));
  Pump();
}

// After Close everything that was accepted goes to the link, which sends it before it ends.
void ReplicaPort::Pump() {
  // busy() takes no lock: WireTurns calls this with its own lock and a boundary port's held, so a
  // lock that is taken here in the other order would deadlock.
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
  // Called with mutex_ held, so that chunks leave in order. This cannot deadlock: Send never runs
  // the callback itself.
  link_->Send(transport::Lane::kBulk,
              {.header = outgoing->headers[chunk],
               .body = body,
               .continues = outgoing->next_chunk < outgoing->headers.size()},
              // A failed send is the link's end; OnClosed says why.
              [self = shared_from_this(), outgoing](const Status&) { self->ChunkTaken(); });
}

void ReplicaPort::ChunkTaken() {
  const std::lock_guard lock(mutex_);
  --chunks_in_link_;
  Pump();
  EndChunk();
}

void ReplicaPort::SendAgreement(wire::TensorKind kind, Step step,
                                const wire::StepMessage& message) {
  std::array<std::byte, wire::kStepMessageBytes> body;
  wire::EncodeStepMessage(message, body);
  SendControl(HeaderFor(kind, step), body);
}

Status ReplicaPort::HandleFrame(transport::Lane lane, const wire::TensorHeader& header,
                                std::span<const std::byte> body) {
  if (header.edge != options_.edge || header.direction == send_direction() ||
      header.replica != options_.peer.replica) {
    return InvalidArgument("expected edge {} from replica {}, got edge {} from replica {}",
                           options_.edge.value(), options_.peer.replica, header.edge.value(),
                           header.replica);
  }
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
  CountReceived(header.blob_bytes, header.chunks, began_);
  ++received_;
  next_chunk_ = 0;
  events_->Push(ReplicaSaid{options_.peer.replica, std::exchange(incoming_, {})});
  return absl::OkStatus();
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

}  // namespace longhaul::worker
