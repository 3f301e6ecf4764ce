// The input of the simulator and of the lower bound: the stages, links and schedule of a pipeline.
// Plain data. A slice is a sequence chunk of a microbatch, or the whole microbatch (base/ids.h).
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "base/ids.h"
#include "run/kinds/schedules.h"

namespace longhaul::schedule {

// A rate without limit, also used for unknown rates.
inline constexpr double kUnlimited = std::numeric_limits<double>::infinity();

struct StageCost {
  absl::Duration forward, backward;             // one slice
  absl::Duration optimizer;                     // once a step, after the last backward
  double egress_bytes_per_second = kUnlimited;  // goodput of its interface
  double ingress_bytes_per_second = kUnlimited;
  uint32_t depth = 1;  // maximum number of microbatches in flight
  // PolicyOptions::activation_lead; at most the least depth of the stages above.
  uint32_t activation_lead = 0;
  // Exchanges with the stage's other replicas, once a step. `reduce`: the replicas average their
  // gradients; the pipeline's tensors go first on the line. The part `reduce_last` of this time
  // begins after the last backward; the rest may run during it. `gather`: new parameters go to all
  // replicas after the optimizer. The lower bound leaves these times out.
  absl::Duration reduce, reduce_last, gather;
  // Bytes of these exchanges in a step, headers included. Only FindBusiestResource counts them.
  double exchange_sent_bytes = 0, exchange_received_bytes = 0;
};

// One direction of a boundary.
struct FlowCost {
  double bytes = 0;  // of one slice, headers included; in PipelineCost::tied: of one step
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
  // Links that use an interface at the same time get together only this share of its rate, above 0
  // and up to 1. A value below 1 models what max-min fairness leaves out: a shared queue serves
  // connections fairly only in the long run, and early bytes do not make up for late ones. The
  // lower bound takes 1.
  double shared_efficiency = 1;
  std::vector<StageCost> stages;         // at least one
  std::vector<BoundaryCost> boundaries;  // chain::Boundaries(stages)
  // The exchange of a tied matrix's gradients between the first stage and the last, once a step;
  // nullopt: no tied matrix. Each of the two sends when its own forwards and backwards of the step
  // have ended.
  std::optional<BoundaryCost> tied;
  // Time that the first stages of the replicas take to agree on the gradient norm.
  absl::Duration replicas_agree;

  uint32_t AllSlices() const { return microbatches * slices; }
};

}  // namespace longhaul::schedule
