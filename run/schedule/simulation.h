// The result of simulating a training step: its time, its lower bound, and how each stage and link
// spends the time.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "run/schedule/bound.h"

namespace longhaul::schedule {

// How a stage spends a step; the parts add up to the step. An idle stage waits for the activation
// of its next forward if its depth (microbatches in flight) has room for one, else for the gradient
// of its next backward. The executor counts the same way.
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
  double rate_share = 0;  // of its capacity in a step with both interfaces to itself
};

struct BoundaryUse {
  DirectionUse forward, backward;
};

struct Simulation {
  absl::Duration step;         // from one step to the next, if steps follow each other
  absl::Duration lower_bound;  // as in bound.h, over all resources, optimizer included
  // The resource that gives the bound: "compute of stage 1", "egress of stage 2", ...
  std::string bottleneck;
  BusiestResource busiest;  // lower_bound minus its time is the pipeline bubble
  std::vector<StageUse> stages;
  std::vector<BoundaryUse> boundaries;
  std::optional<BoundaryUse> tied;
};

}  // namespace longhaul::schedule
