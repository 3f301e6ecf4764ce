// The lower bound of a step: the step of every schedule takes at least as long.
//
// Each resource r (a stage's compute, a worker's egress, its ingress, an ordered pair of workers)
// gives a bound:
//   (earliest time at which the first slice reaches r) + (slices of a step) x (time of a slice at
//   r)
//     + (shortest way from r to the end of the step)
// The bound of a step that does not overlap with others is the largest of these, plus the first
// stage's optimizer. The middle term is the floor: the cost of a step if steps follow each other
// without a gap. The other two terms are the pipeline bubble, in which r waits. If steps overlap,
// or if another stage's optimizer makes its floor longer than the bound, the largest floor is the
// bound.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "run/schedule/cost.h"

namespace longhaul::schedule {

// The resource with the most work in a step. The time for this work is a floor for all schedules,
// also those that do not drain the pipeline between two steps.
struct BusiestResource {
  std::string name;     // as LowerBound::bottleneck
  absl::Duration step;  // time at work in a step; a stage's compute includes its optimizer
  double bytes = 0;     // carried in a step, headers included; 0: the resource computes
};

struct LowerBound {
  absl::Duration step;
  // "compute of stage 1", "egress of stage 2", "ingress of stage 0", "link from stage 1 to stage 2"
  std::string bottleneck;
};

// `cost` must be one that Simulate() accepts.
LowerBound ComputeLowerBound(const PipelineCost& cost);
BusiestResource FindBusiestResource(const PipelineCost& cost);

}  // namespace longhaul::schedule
