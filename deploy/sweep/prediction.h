// What a point's step should take, from its plan and from the links that the sweep itself made. The
// coordinator's own prediction (in the plan) knows of the links what it could measure. Pure.
#ifndef LONGHAUL_DEPLOY_SWEEP_PREDICTION_H_
#define LONGHAUL_DEPLOY_SWEEP_PREDICTION_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "base/status.h"
#include "run/file/run_spec.h"
#include "run/plan/plan.h"

namespace longhaul::cli {

struct PointPrediction {
  double simulated_seconds = 0;
  double bound_seconds = 0;
  double floor_seconds = 0;  // of steps without fill and drain
  std::string bottleneck;    // "egress of stage 1"
};

// With all interfaces at this rate (0: unlimited) and all links of this delay, one way.
StatusOr<PointPrediction> PredictPoint(const Plan& plan, const RunSpec& spec,
                                       uint64_t rate_bits_per_second, absl::Duration delay);

// What the network alone takes of a step at least: for estimates of how long a sweep takes.
double NetworkSeconds(const RunSpec& spec, uint64_t rate_bits_per_second);

}  // namespace longhaul::cli

#endif  // LONGHAUL_DEPLOY_SWEEP_PREDICTION_H_
