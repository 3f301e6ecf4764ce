// The events that a stage's compute thread gets from other threads, such as the links' loops, the
// codec thread and the session with the coordinator.
//
// EventQueue is thread-safe. The protocol bounds the size of the queue: a neighbour has at most the
// tensors of one step in flight.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/status.h"
#include "proto/wire/sample_messages.h"
#include "proto/wire/step_message.h"
#include "run/plan/plan.h"
#include "worker/pipeline/pass.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

// A decoded activation (kForward) or gradient (kBackward), or a piece of a tied matrix's gradient.
struct TensorArrived {
  Pass pass;
  Slice slice;  // for a piece of a tied matrix: slice.microbatch is the index of the piece
  Direction direction = Direction::kForward;
  BoundaryTensor tensor;
  EdgeKind over = EdgeKind::kActivations;  // kind of the edge; kTied: a piece of a tied matrix
};
// A received tensor is implausible (plausibility.h). Comes before the TensorArrived of the tensor.
struct TensorDoubted {
  Pass pass;
  Slice slice;
  EdgeId edge{0};
  Direction direction = Direction::kForward;
  std::string what;  // a sentence without its full stop
};
// The next stage has begun to compute with this activation of a forward-only pass.
struct ActivationTaken {
  Pass pass;
  Slice slice;
};
// The peer has taken one more piece of a tied matrix's gradient that this stage sent.
struct PieceTaken {};
// The digest of a tied matrix at the other stage that holds it.
struct DigestArrived {
  Step step{0};
  uint64_t digest = 0;
};
// The next stage has sent the squared gradient norm of all stages after this one.
struct NormArrived {
  Step step{0};
  wire::StepMessage message;
  MonoTime at;  // when the message arrived
};
// The previous stage has sent the final norm and the decisions about the step.
struct StepControlArrived {
  Step step{0};
  wire::StepMessage message;
  MonoTime at;  // when the message arrived
};
// The previous stage begins a round of samples.
struct SampleRoundArrived {
  Step step{0};
  wire::SampleRound round;
};
// The next stage has the tokens that the last stage took in a sampling pass.
struct SampledTokensArrived {
  Step step{0};
  wire::SampledTokens sampled;
};
// A whole message from another data-parallel replica of this stage (transport/replicas).
struct ReplicaSaid {
  uint32_t replica = 0;  // the sender
  std::vector<std::byte> message;
};
// At replica 0: `replica` has sent its gradient norm. At other replicas: replica 0 has sent its
// decision for all. Only the first stage of a replica gets this event.
struct ReplicaAgrees {
  uint32_t replica = 0;
  Step step{0};
  wire::StepMessage message;
};
// All messages that a merge with the other replicas needs have arrived.
struct MergeReady {};
// The link to the peer has ended. `reason` is OK if the peer has finished its part.
struct PeerGone {
  EdgeId edge{0};
  CellId peer;
  Status reason;
};
// This stage cannot go on, for example because a codec failed, a frame is invalid, or the final
// checkpoint could not be written. `reason` is never OK.
struct Failed {
  Status reason;
};
// From the next step on, changes the number of microbatches in flight ("depth") and the number of
// microbatches by which activations go ahead of gradients ("lead").
struct RetuneRequested {
  uint64_t id = 0;  // of the coordinator's request; the answer repeats `id`
  uint32_t depth = 1;
  std::optional<uint32_t> activation_lead;  // nullopt: unchanged
};
// Asks the run to stop at the end of a step.
struct StopRequested {};
// Asks for samples after a step. First stage of replica 0.
struct SamplesRequested {
  uint64_t request = 0;                        // of the coordinator; the answer repeats it
  std::vector<std::vector<uint32_t>> prompts;  // token ids
  wire::SampleRound round;                     // without lengths
};
// Asks the stage to end this attempt at once. `reason`: its text goes into the stage's error.
struct AbortRequested {
  Status reason;
};

using PipelineEvent =
    std::variant<TensorArrived, TensorDoubted, ActivationTaken, PieceTaken, DigestArrived,
                 NormArrived, StepControlArrived, SampleRoundArrived, SampledTokensArrived,
                 ReplicaSaid, ReplicaAgrees, MergeReady, PeerGone, Failed, StopRequested,
                 SamplesRequested, RetuneRequested, AbortRequested>;

class EventQueue {
 public:
  void Push(PipelineEvent event) {
    {
      const std::lock_guard lock(mutex_);
      events_.push_back(std::move(event));
    }
    ready_.notify_one();
  }
  // Takes all events, in order. Returns at once, empty if there are none.
  std::deque<PipelineEvent> TakeAll() {
    const std::lock_guard lock(mutex_);
    return std::exchange(events_, {});
  }
  // Waits for an event until the deadline, then takes all events. Empty: none came.
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
