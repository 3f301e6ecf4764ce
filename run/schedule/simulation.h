// What the simulator says of a step.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "run/schedule/bound.h"

namespace longhaul::schedule {

// Where a stage's time goes; the parts add up to the step. While it computes nothing it waits for
// what it would run next: the activation of its next forward where its depth has room for one, else
// the gradient of its next backward (as the executor counts).
struct StageTime {
  absl::Duration compute;
  // What the stage waits for has arrived and is being decoded. The executor's `wait_codec` has
  // more: also waits in which the codec works for others, as it cannot know what would have come
  // sooner.
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
  BusiestResource busiest;  // the bound less its time is the pipeline bubble
  std::vector<StageUse> stages;
  std::vector<BoundaryUse> boundaries;
  std::optional<BoundaryUse> tied;
};

}  // namespace longhaul::schedule
