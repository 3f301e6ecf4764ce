// Predicts a point's step from its plan and from the sweep's links. The coordinator's own
// prediction, in the plan, only has the measured values of the links. Pure.
#pragma once

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
  double floor_seconds = 0;  // without the pipeline bubble
  std::string bottleneck;    // "egress of stage 1"
};

// Predicts with all interfaces at this rate (0: unlimited) and all links with this one-way delay.
StatusOr<PointPrediction> PredictPoint(const Plan& plan, const RunSpec& spec,
                                       uint64_t rate_bits_per_second, absl::Duration delay);

// Returns the minimum time of a step on the network alone, for estimates of a sweep's duration.
double NetworkSeconds(const RunSpec& spec, uint64_t rate_bits_per_second);

}  // namespace longhaul::cli
