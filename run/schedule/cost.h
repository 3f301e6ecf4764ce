// The input of the simulator and of the lower bound: the stages, links and schedule of a pipeline.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "base/ids.h"
#include "run/kinds/schedules.h"

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
  // Exchanges with the stage's other replicas, once a step. `reduce` turns gradients into their
  // means while the line is free of tensors, which go first. All of it but `reduce_last` may run
  // during the last backward. `gather` sends new parameters to all replicas after the optimizer.
  // The lower bound leaves these out.
  absl::Duration reduce, reduce_last, gather;
  // Bytes of these exchanges, headers included; only the steady-state floor counts them.
  double exchange_sent_bytes = 0, exchange_received_bytes = 0;
};

// One direction of a boundary.
struct FlowCost {
  double bytes = 0;  // a slice's, headers included; over a tied edge, a step's
  // Maximum rate of this ordered pair of workers, in addition to the interfaces' rates.
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
  // Several links that use an interface at once share only this part of its rate. A value below 1
  // models what max-min fairness leaves out: connections that share a queue are served fairly only
  // in the long run, and early bytes do not make up for late ones. The lower bound leaves it out.
  double shared_efficiency = 1;
  std::vector<StageCost> stages;         // at least one
  std::vector<BoundaryCost> boundaries;  // chain::Boundaries(stages)
  // The exchange of a tied matrix between the first stage and the last: once a step, each way as
  // soon as the sender's passes end.
  std::optional<BoundaryCost> tied;
  // Time that the first stages of the replicas take to agree on the gradient norm.
  absl::Duration replicas_agree;

  uint32_t AllSlices() const { return microbatches * slices; }
};

}  // namespace longhaul::schedule
