// The lower bound of a step's time: no schedule can make the step shorter.
//
// Each resource r (a stage's compute, a worker's egress, its ingress, the link from one worker to
// another) gives a bound, the sum of three times:
//
//   the earliest time at which the first slice reaches r
//   + slices of a step x time of a slice at r
//   + the shortest time from r to the end of the step
//
// The middle term, with a stage's optimizer, is the floor of r: how long r works for a step. A step
// cannot be shorter even if steps follow each other without a gap. In the other two terms r waits;
// they are the pipeline bubble.
//
// If steps do not overlap, the bound of a step is the largest of the sums plus the first stage's
// optimizer, or the largest floor if that is longer. If steps overlap, it is the largest floor.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "run/schedule/cost.h"

namespace longhaul::schedule {

// The resource with the largest floor.
struct BusiestResource {
  std::string name;     // as LowerBound::bottleneck
  absl::Duration step;  // the floor: its work in a step; a stage's compute includes its optimizer
  double bytes = 0;     // carried in a step, headers included; 0: the resource computes
};

struct LowerBound {
  absl::Duration step;
  // "compute of stage 1", "egress of stage 2", "ingress of stage 0", "link from stage 1 to stage 2"
  std::string bottleneck;
};

// `cost` must be one that Simulate() accepts (simulator.h). Pure; no errors.
LowerBound ComputeLowerBound(const PipelineCost& cost);
BusiestResource FindBusiestResource(const PipelineCost& cost);

}  // namespace longhaul::schedule
