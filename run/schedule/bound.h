// The lower bound of one synchronous step: no schedule is faster. Where steps overlap it is the
// middle term of what follows, alone.
//
// For each resource r (a stage's compute, a worker's egress, its ingress, an ordered pair of
// workers):
//   (earliest arrival of the first slice's use of r) + (slices of a step) x (service time of r a
//     slice) + (shortest way out after the last use)
// and the largest of them, plus the first stage's optimizer. The middle term alone is what a step
// costs where steps follow each other without a gap; the others are fill and drain, in which r
// waits for the pipeline.
#ifndef LONGHAUL_RUN_SCHEDULE_BOUND_H_
#define LONGHAUL_RUN_SCHEDULE_BOUND_H_

#include <string>

#include "absl/time/time.h"
#include "run/schedule/cost.h"

namespace longhaul::schedule {

// Of all the one that has the most to do in a step: the floor under all schedules, also those that
// do not let the pipeline run empty between two steps.
struct BusiestResource {
  std::string name;     // as LowerBound::bottleneck
  absl::Duration step;  // that it is at work; of a stage's compute with the optimizer
  double bytes = 0;     // that it carries in a step, headers included; 0: it computes
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

#endif  // LONGHAUL_RUN_SCHEDULE_BOUND_H_
