// The events that reach a stage's compute thread from other threads: the link's loop, the codec
// thread and the control session.
//
// Thread-safe. The protocol bounds its size: a neighbour has at most one step's tensors in flight.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/status.h"
#include "proto/wire/step_message.h"
#include "run/plan/plan.h"
#include "worker/pipeline/pass.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

// A decoded activation (kForward) or gradient (kBackward), or a piece of a tied matrix's gradient.
struct TensorArrived {
  Pass pass;
  Slice slice;  // the index of a tied matrix's piece is its microbatch
  Direction direction = Direction::kForward;
  BoundaryTensor tensor;
  EdgeKind over = EdgeKind::kActivations;  // or kTied
};
// The next stage has begun to compute with this activation of a validation.
struct ActivationTaken {
  Pass pass;
  Slice slice;
};
// The peer has taken the next piece of a tied matrix's gradient.
struct PieceTaken {};
// The other end's digest of a tied matrix.
struct DigestArrived {
  Step step{0};
  uint64_t digest = 0;
};
struct NormArrived {  // from the next stage
  Step step{0};
  wire::StepMessage message;
  MonoTime at;
};
struct StepControlArrived {  // from the stage before
  Step step{0};
  wire::StepMessage message;
  MonoTime at;
};
// A whole message of another data-parallel replica of this stage (transport/replicas).
struct ReplicaSaid {
  uint32_t replica = 0;
  std::vector<std::byte> message;
};
// Between first stages of replicas: a replica's norm on its way to replica 0, or the decision of
// replica 0 for all.
struct ReplicaAgrees {
  uint32_t replica = 0;
  Step step{0};
  wire::StepMessage message;
};
// All messages that a merge with the other replicas needs have arrived.
struct MergeReady {};
// The link has ended. `reason` is OK if the peer had finished its part.
struct PeerGone {
  EdgeId edge{0};
  CellId peer;
  Status reason;
};
// This stage cannot go on: a codec failed, or a frame is invalid.
struct Failed {
  Status reason;
};
// Changes the number of microbatches in flight ("depth") and the lead from the next step on.
struct RetuneRequested {
  uint64_t id = 0;
  uint32_t depth = 1;
  std::optional<uint32_t> activation_lead;  // nullopt: unchanged
};
struct StopRequested {};
struct AbortRequested {
  Status reason;
};

using PipelineEvent =
    std::variant<TensorArrived, ActivationTaken, PieceTaken, DigestArrived, NormArrived,
                 StepControlArrived, ReplicaSaid, ReplicaAgrees, MergeReady, PeerGone, Failed,
                 StopRequested, RetuneRequested, AbortRequested>;

class EventQueue {
 public:
  void Push(PipelineEvent event) {
    {
      const std::lock_guard lock(mutex_);
      events_.push_back(std::move(event));
    }
    ready_.notify_one();
  }
  // Takes all events, in order. Empty if there are none.
  std::deque<PipelineEvent> TakeAll() {
    const std::lock_guard lock(mutex_);
    return std::exchange(events_, {});
  }
  // Waits for an event until the deadline, then takes all events.
  std::deque<PipelineEvent> WaitForAny(Deadline deadline) {
    std::unique_lock lock(mutex_);
    ready_.wait_until(lock, deadline.time().ToChrono(), [this] { return !events_.empty(); });
    return std::exchange(events_, {});
  }

 private:
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<PipelineEvent> events_;
};

}  // namespace longhaul::worker
