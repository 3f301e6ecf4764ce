// A stage's end of the edge to another data-parallel replica: carries whole messages of
// transport/replicas in order. Between first stages it also carries agreements: the small messages
// by which replicas agree on a step. A replica sends the norm of its gradient to replica 0
// (kNormUp), which sends its decision to the others (kStepControl).
//
// Messages travel in chunks on the bulk lane, agreements on the control lane. The port hands a few
// chunks at a time to the link, and almost none while boundary tensors are in flight
// (wire_turns.h).
//
// Threads: Send from one thread at a time, SendAgreement on the compute thread, LinkHandler on the
// link's loop. Messages that are sent before Attach or after Close are dropped. A shared_ptr holds
// the port, because the link's loop and pending sends keep it alive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "base/ids.h"
#include "proto/wire/step_message.h"
#include "proto/wire/tensor_header.h"
#include "run/plan/plan.h"
#include "worker/pipeline/edge_port.h"
#include "worker/pipeline/event_queue.h"
#include "worker/pipeline/traffic_watch.h"
#include "worker/pipeline/wire_turns.h"

namespace longhaul::worker {

// Maximum number of replica chunks in a link while boundary tensors are in flight on the line. Not
// 0, because the boundary tensors may leave by another line than this link, and because replica
// messages must not starve.
inline constexpr uint32_t kChunksBesideTensors = 2;

struct ReplicaPortOptions {
  Stamp stamp;  // of the assignment that both ends carry out (base/ids.h)
  Epoch epoch;
  EdgeId edge;
  CellId own, peer;  // the cells at the two ends: the same stage in two replicas
  uint32_t credits = transport::kDefaultCredits;  // as in EdgePort::End
  // Maximum number of chunks in the link at a time, enough to fill it. A boundary tensor then waits
  // for at most these.
  uint32_t most_chunks = transport::kDefaultCredits;
  std::shared_ptr<WireTurns> turns;  // null: nothing else uses the line
  // Maximum length of a peer's message. A longer message is an invalid frame. Protects against
  // hostile headers.
  uint64_t most_message_bytes = uint64_t{1} << 32;
  TrafficWatch* traffic = nullptr;                   // as in EdgePort::End
  std::function<void(const LinkHealth&)> on_health;  // as in EdgePort::End
};

class ReplicaPort final : public EdgePort, public std::enable_shared_from_this<ReplicaPort> {
 public:
  static std::shared_ptr<ReplicaPort> Create(ReplicaPortOptions options,
                                             std::shared_ptr<EventQueue> events);

  // As EdgePort::Close. Messages that Send has accepted are still sent.
  void Close(Deadline deadline) override;

  // Sends a message, which arrives as a ReplicaSaid. Never blocks.
  void Send(Step step, std::vector<std::byte> message);
  // Sends an agreement, which arrives as a ReplicaAgrees. `kind`: kNormUp or kStepControl.
  void SendAgreement(wire::TensorKind kind, Step step, const wire::StepMessage& message);

  void OnHealed(absl::Duration away, uint64_t frames_resent) override;

 private:
  // A message from Send until the peer has taken its last chunk.
  struct Outgoing;
  ReplicaPort(ReplicaPortOptions options, std::shared_ptr<EventQueue> events);
  Status HandleFrame(transport::Lane lane, const wire::TensorHeader& header,
                     std::span<const std::byte> body) override;
  Status HandleChunk(const wire::TensorHeader& header, std::span<const std::byte> body);
  void ChunkTaken();
  // Gives the link as many chunks as allowed. The caller holds mutex_, here and below.
  void Pump();
  void GiveChunk();

  const ReplicaPortOptions options_;

  // Guarded by mutex_.
  uint32_t sent_ = 0;  // number of messages
  uint32_t most_chunks_;
  std::deque<std::shared_ptr<Outgoing>> waiting_;  // messages with chunks that the link has not got
  uint64_t chunks_in_link_ = 0;

  // The arriving message. Used on the link's loop only.
  uint32_t received_ = 0;
  std::vector<std::byte> incoming_;
  uint64_t incoming_bytes_ = 0;  // length of the whole message
  uint32_t next_chunk_ = 0;
  MonoTime began_;
};

}  // namespace longhaul::worker
