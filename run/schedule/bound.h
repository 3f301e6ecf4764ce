// The lower bound of one synchronous step: no schedule is faster.
//
// For each resource r (a stage's compute, a worker's egress, its ingress, an ordered pair of
// workers):
//   (earliest arrival of the first microbatch's use of r) + M x (service time of r a microbatch)
//     + (shortest way out after the last use)
// and the largest of them, plus the first stage's optimizer.
#ifndef LONGHAUL_RUN_SCHEDULE_BOUND_H_
#define LONGHAUL_RUN_SCHEDULE_BOUND_H_

#include <string>

#include "absl/time/time.h"

namespace longhaul::schedule {

struct PipelineCost;

struct LowerBound {
  absl::Duration step;
  // "compute of stage 1", "egress of stage 2", "ingress of stage 0", "link from stage 1 to stage 2"
  std::string bottleneck;
};

// `cost` must be one that Simulate() accepts.
LowerBound ComputeLowerBound(const PipelineCost& cost);

}  // namespace longhaul::schedule

#endif  // LONGHAUL_RUN_SCHEDULE_BOUND_H_
