#include "worker/pipeline/edge_port.h"

#include <fmt/core.h>

#include <array>
#include <utility>
#include <vector>

#include "proto/wire/link_header.h"
#include "worker/pipeline/link_credits.h"
#include "worker/pipeline/tensor_assembler.h"

namespace longhaul::worker {

EdgePort::EdgePort(End end, std::shared_ptr<EventQueue> events)
    : events_(std::move(events)), end_(std::move(end)) {}

void EdgePort::Attach(std::shared_ptr<transport::Link> link) {
  const std::lock_guard lock(mutex_);
  link_ = std::move(link);
}

void EdgePort::Close(Deadline deadline) {
  std::shared_ptr<transport::Link> link;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    link = link_;
  }
  if (link) link->Close(deadline);
}

wire::TensorHeader EdgePort::HeaderFor(wire::TensorKind kind, Step step) const {
  wire::TensorHeader header;
  header.kind = kind;
  header.stamp = end_.stamp;
  header.epoch = end_.epoch;
  header.step = step;
  header.replica = end_.replica;
  header.edge = end_.edge;
  header.direction = end_.sends;
  return header;
}

void EdgePort::SendControl(wire::TensorHeader header, std::span<const std::byte> body) {
  header.blob_bytes = body.size();
  struct Buffers {
    std::array<std::byte, wire::kTensorHeaderBytes> header;
    std::vector<std::byte> body;
  };
  auto buffers = std::make_shared<Buffers>();
  wire::EncodeTensorHeader(header, buffers->header);
  buffers->body.assign(body.begin(), body.end());
  std::shared_ptr<transport::Link> link;
  {
    const std::lock_guard lock(mutex_);
    link = link_;
    use_.payload_bytes_sent += wire::kTensorHeaderBytes + body.size();
  }
  if (link) {
    link->Send(transport::Lane::kControl, {buffers->header, buffers->body},
               [buffers](const Status&) {});
  }
}

bool EdgePort::BeginChunks(uint64_t message_bytes, uint64_t chunks) {
  use_.payload_bytes_sent += message_bytes + chunks * wire::kTensorHeaderBytes;
  const bool first = chunks_under_way_ == 0;
  if (first) {
    busy_since_ = Now();
    NoteTraffic(/*begin=*/true);
  }
  chunks_under_way_ += chunks;
  return first;
}

bool EdgePort::EndChunk() {
  if (--chunks_under_way_ > 0) return false;
  use_.send_busy += Now() - busy_since_;
  NoteTraffic(/*begin=*/false);
  return true;
}

void EdgePort::NoteReceiving(bool receiving) {
  if (std::exchange(receiving_, receiving) != receiving) NoteTraffic(/*begin=*/receiving);
}

void EdgePort::NoteTraffic(bool begin) const {
  if (end_.traffic == nullptr) return;
  if (begin) {
    end_.traffic->Begin();
  } else {
    end_.traffic->End();
  }
}

// Leaves out the first chunk, because nobody knows how long it was under way. Ignores messages of
// few chunks: their rate is not the line's.
void EdgePort::CountReceived(uint64_t message_bytes, uint32_t chunks, MonoTime began) {
  if (chunks < LinkCredits::kChunksOfARate) return;
  constexpr uint64_t kHeaderBytes = wire::kLinkHeaderBytes + wire::kTensorHeaderBytes;
  const std::lock_guard lock(mutex_);
  use_.received_bytes += message_bytes - kChunkBytes + (uint64_t{chunks} - 1) * kHeaderBytes;
  use_.receive_time += Now() - began;
}

PortUse EdgePort::TakeUse() {
  const std::lock_guard lock(mutex_);
  if (link_) {
    const transport::LinkStats stats = link_->stats();
    use_.link_bytes_sent = stats.link_bytes_sent - last_stats_.link_bytes_sent;
    use_.credit_wait = stats.credit_wait - last_stats_.credit_wait;
    last_stats_ = stats;
  }
  // If a message is still in flight, its time so far counts to the step that ends.
  if (chunks_under_way_ > 0) {
    const MonoTime now = Now();
    use_.send_busy += now - busy_since_;
    busy_since_ = now;
  }
  return std::exchange(use_, {});
}

void EdgePort::OnFrame(transport::Lane lane, std::span<const std::byte> payload) {
  frames_received_.fetch_add(1, std::memory_order_relaxed);
  const Status status = [&]() -> Status {
    if (payload.size() < wire::kTensorHeaderBytes) {
      return InvalidArgument("expected a tensor header of {} bytes, got {} bytes",
                             wire::kTensorHeaderBytes, payload.size());
    }
    LH_ASSIGN_OR_RETURN(const wire::TensorHeader header,
                        wire::DecodeTensorHeader(payload.first(wire::kTensorHeaderBytes)));
    if (header.stamp != end_.stamp) return absl::OkStatus();
    return HandleFrame(lane, header, payload.subspan(wire::kTensorHeaderBytes));
  }();
  if (!status.ok()) {
    events_->Push(Failed{Annotate(status, fmt::format("frame from {}", ToString(end_.peer)))});
  }
}

void EdgePort::OnClosed(const Status& reason) {
  {
    const std::lock_guard lock(mutex_);
    // After Close, the link's end is no event.
    if (std::exchange(closed_, true)) return;
  }
  events_->Push(PeerGone{end_.edge, end_.peer, reason});
}

std::shared_ptr<transport::Link> EdgePort::link() {
  const std::lock_guard lock(mutex_);
  return link_;
}

void EdgePort::Say(const LinkHealth& health) const {
  if (end_.on_health) end_.on_health(health);
}

std::optional<transport::LinkStats> EdgePort::Stats() {
  const auto open = link();
  return open ? std::optional(open->stats()) : std::nullopt;
}

void EdgePort::OnSuspect(absl::Duration silence) {
  Say({.state = "suspect", .silence = silence});
}

void EdgePort::OnHealthy() {
  Say({.state = "healthy"});
}

void EdgePort::OnLost(const Status& why) {
  Say({.state = "lost", .reason = why});
}

void EdgePort::OnHealed(absl::Duration away, uint64_t frames_resent) {
  // It may go another way now, with another round trip than the plan's.
  if (const auto open = link()) open->GrowCredits(transport::kDefaultCredits);
  Say({.state = "healed", .silence = away, .frames_resent = frames_resent});
}

}  // namespace longhaul::worker
