// Predicts the time of one synchronous step by driving the executor's own policies with a virtual
// clock; and the lower bound that no schedule beats.
//
// A step has the phases that the executor drives: passes, sums of gradients (of a tied matrix; over
// replicas of the stage), the agreement on the norm, the optimizer, new parameters from replicas.
// Replicas are simulated one by one, as if all of them ended their passes alike.
//
// Model of the passes: a stage computes one thing at a time, a slice forward or backward. A message
// between neighbours occupies the egress of the sender and the ingress of the receiver, which all
// transfers through that interface share max-min fairly. Messages of one link direction go in
// order, several links of one sender at once; a message arrives `latency` after its last byte left.
// Codecs run beside compute on their own thread, one message at a time per stage. Pure and
// deterministic; O(S * M * slices) events of O(S) each.
#ifndef LONGHAUL_RUN_SCHEDULE_SIMULATOR_H_
#define LONGHAUL_RUN_SCHEDULE_SIMULATOR_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/status.h"
#include "run/file/run_spec.h"
#include "run/schedule/bound.h"
#include "run/schedule/policy.h"

namespace longhaul::schedule {

inline constexpr double kUnlimited = std::numeric_limits<double>::infinity();

struct StageCost {
  absl::Duration forward, backward;             // one slice
  absl::Duration optimizer;                     // once a step, after the last backward
  double egress_bytes_per_second = kUnlimited;  // goodput of its interface
  double ingress_bytes_per_second = kUnlimited;
  uint32_t depth = 1;  // microbatches
  // PolicyOptions::activation_lead; at most the least depth of the stages above.
  uint32_t activation_lead = 0;
  // With other replicas of the stage, once a step. `reduce` takes gradients to their means, where
  // the line is free of tensors (these go first). All but `reduce_last` of it may run beside the
  // last backward. `gather` takes new parameters to all replicas, from when the optimizer has
  // stepped. The bound knows nothing of these.
  absl::Duration reduce, reduce_last, gather;
  // The same in bytes, headers included, which the steady-state floor alone knows.
  double exchange_sent_bytes = 0, exchange_received_bytes = 0;
};

// One direction of a boundary.
struct FlowCost {
  double bytes = 0;  // one slice, headers included; of a tied matrix, one step
  // What this ordered pair of workers gets at most, beside the interfaces' rates.
  double bytes_per_second = kUnlimited;
  absl::Duration latency;         // one way
  absl::Duration encode, decode;  // one slice
};
struct BoundaryCost {
  FlowCost forward, backward;
  const FlowCost& Of(Direction direction) const {
    return direction == Direction::kForward ? forward : backward;
  }
};

struct PipelineCost {
  ScheduleKind schedule = ScheduleKind::kLinkAware;
  uint32_t microbatches = 1;
  uint32_t slices = 1;  // of each microbatch
  // Of an interface's rate, while several links share it. The bound does not know it. Below 1 it
  // stands for what max-min fairness leaves out: connections that share a queue do so fairly in the
  // long run only, and what one gets too early does not make up for what the other gets too late.
  double shared_efficiency = 1;
  std::vector<StageCost> stages;         // at least one
  std::vector<BoundaryCost> boundaries;  // chain::Boundaries(stages)
  // Of a tied matrix, between the first stage and the last: its bytes are sent once a step, each
  // way as soon as the sender's passes end.
  std::optional<BoundaryCost> tied;
  // In which the first stages of replicas agree on the norm.
  absl::Duration replicas_agree;

  uint32_t AllSlices() const { return microbatches * slices; }
};

// Where a stage's time goes; the parts add up to the step. While it computes nothing it waits for
// what it would run next: the activation of its next forward where its depth has room for one, else
// the gradient of its next backward (as the executor counts).
struct StageTime {
  absl::Duration compute;
  // What it waits for has arrived and is being decoded. (The executor's `wait_codec` also has the
  // waits in which the codec works for others: it cannot know what would have come sooner.)
  absl::Duration codec;
  absl::Duration wait_above;  // for an activation, or for the word to step the optimizer
  absl::Duration wait_below;  // for a gradient
  absl::Duration optimizer;
};

struct StageUse {
  StageTime time;
  double egress_share = 0, ingress_share = 0;  // of what the interface could carry in a step
};

// One direction of one boundary.
struct DirectionUse {
  double busy_share = 0;  // of the step, with a transfer under way
  double rate_share = 0;  // of what it could carry in a step if it had both interfaces to itself
};

struct BoundaryUse {
  DirectionUse forward, backward;
};

struct Simulation {
  absl::Duration step;         // until the last optimizer has stepped, or to the next step
  absl::Duration lower_bound;  // bound.h's, over all resources, optimizer included
  // The resource that gives the bound: "compute of stage 1", "egress of stage 2", ...
  std::string bottleneck;
  BusiestResource busiest;  // what is between its time and the bound is fill and drain
  std::vector<StageUse> stages;
  std::vector<BoundaryUse> boundaries;
  std::optional<BoundaryUse> tied;
};

// Of steps that overlap (OverlapsSteps) it is the mean time from one to the next: of so many that
// follow others, which have filled the pipeline.
inline constexpr uint32_t kStepsToFill = 2, kCountedSteps = 2;

// kInvalidArgument for an instance that makes no sense (no stages, negative times, sizes differ);
// kCancelled within milliseconds once `stop` is requested: 64 stages with 65,536 microbatches take
// minutes.
StatusOr<Simulation> Simulate(const PipelineCost& cost, const std::stop_token& stop = {});

}  // namespace longhaul::schedule

#endif  // LONGHAUL_RUN_SCHEDULE_SIMULATOR_H_
