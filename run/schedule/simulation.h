// The result of simulating a training step: its time, its lower bound, and how each stage and link
// spends the time.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "run/schedule/bound.h"

namespace longhaul::schedule {

// How a stage spends a step; the parts add up to the step. The time of an idle stage counts as
// waiting for an activation if the stage may have another microbatch in flight, else as waiting for
// a gradient. The executor counts in the same way.
struct StageTime {
  absl::Duration compute;
  // The stage waits for a tensor that has arrived and is being decoded. The executor's `wait_codec`
  // also counts waits in which the codec works on other tensors.
  absl::Duration codec;
  absl::Duration wait_above;  // for an activation, or for the final gradient norm
  absl::Duration wait_below;  // for a gradient
  absl::Duration optimizer;
};

struct StageUse {
  StageTime time;
  double egress_share = 0, ingress_share = 0;  // of the interface's capacity in a step
};

// One direction of one boundary.
struct DirectionUse {
  double busy_share = 0;  // share of the step with a transfer under way
  double rate_share = 0;  // bytes of a step / what it could carry in a step without other transfers
};

struct BoundaryUse {
  DirectionUse forward, backward;
};

struct Simulation {
  absl::Duration step;         // from the beginning of a step to the beginning of the next
  absl::Duration lower_bound;  // as in bound.h, over all resources, optimizer included
  // The resource that gives the bound: "compute of stage 1", "egress of stage 2", ...
  std::string bottleneck;
  BusiestResource busiest;  // lower_bound - busiest.step is the pipeline bubble
  std::vector<StageUse> stages;
  std::vector<BoundaryUse> boundaries;
  std::optional<BoundaryUse> tied;  // nullopt: no tied matrix (PipelineCost::tied)
};

}  // namespace longhaul::schedule
