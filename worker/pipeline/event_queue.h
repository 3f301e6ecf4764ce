// What reaches a stage's compute thread from its other threads (link loop, codec thread, control
// session).
//
// Thread-safe. Bounded by the protocol: a neighbour has at most one step's tensors under way.
#ifndef LONGHAUL_WORKER_PIPELINE_EVENT_QUEUE_H_
#define LONGHAUL_WORKER_PIPELINE_EVENT_QUEUE_H_

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
  Slice slice;  // a piece of a tied matrix: its number as the microbatch's
  Direction direction = Direction::kForward;
  BoundaryTensor tensor;
  EdgeKind over = EdgeKind::kActivations;  // or kTied
};
// The stage below computes with this activation of a validation.
struct ActivationTaken {
  Pass pass;
  Slice slice;
};
// The peer has taken the next piece of a tied matrix's gradient.
struct PieceTaken {};
struct DigestArrived {  // of a tied matrix, from its other end
  Step step{0};
  uint64_t digest = 0;
};
struct NormArrived {  // from downstream
  Step step{0};
  wire::StepMessage message;
  MonoTime at;
};
struct StepControlArrived {  // from upstream
  Step step{0};
  wire::StepMessage message;
  MonoTime at;
};
// A whole message of another replica of this stage (transport/replicas).
struct ReplicaSaid {
  uint32_t replica = 0;
  std::vector<std::byte> message;
};
// Between the first stages of replicas: a replica's norm, on its way to the first replica, or what
// that one has decided.
struct ReplicaAgrees {
  uint32_t replica = 0;
  Step step{0};
  wire::StepMessage message;
};
// What a merge with the other replicas needs is there.
struct MergeReady {};
// The link is over. Orderly when the peer had finished.
struct PeerGone {
  EdgeId edge{0};
  CellId peer;
  Status reason;
};
// This stage cannot go on (a codec's error, a frame that makes no sense).
struct Failed {
  Status reason;
};
// Another depth and lead, from the next step that begins on.
struct RetuneRequested {
  uint64_t id = 0;
  uint32_t depth = 1;
  std::optional<uint32_t> activation_lead;  // nullopt: stays
};
struct StopRequested {};
struct CheckpointRequested {};
struct AbortRequested {
  Status reason;
};

using PipelineEvent =
    std::variant<TensorArrived, ActivationTaken, PieceTaken, DigestArrived, NormArrived,
                 StepControlArrived, ReplicaSaid, ReplicaAgrees, MergeReady, PeerGone, Failed,
                 StopRequested, CheckpointRequested, RetuneRequested, AbortRequested>;

class EventQueue {
 public:
  void Push(PipelineEvent event) {
    {
      const std::lock_guard lock(mutex_);
      events_.push_back(std::move(event));
    }
    ready_.notify_one();
  }
  // Everything that is there, in order; nothing if nothing is.
  std::deque<PipelineEvent> TakeAll() {
    const std::lock_guard lock(mutex_);
    return std::exchange(events_, {});
  }
  // Waits until something is there or the deadline passes.
  std::deque<PipelineEvent> WaitForAny(Deadline deadline) {
    std::unique_lock lock(mutex_);
    ready_.wait_until(lock, deadline.time(), [this] { return !events_.empty(); });
    return std::exchange(events_, {});
  }

 private:
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<PipelineEvent> events_;
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_PIPELINE_EVENT_QUEUE_H_
