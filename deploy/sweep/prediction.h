// Predicts the step time of a point from its plan and from the links that the sweep sets. The
// plan's own prediction, by the coordinator, is for the links as they were measured. Pure.
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

// Predicts a step with every interface at this rate (0: unlimited) and every link with this one-way
// delay.
StatusOr<PointPrediction> PredictPoint(const Plan& plan, const RunSpec& spec,
                                       uint64_t rate_bits_per_second, absl::Duration delay);

// Returns for how many seconds of a step the busiest worker sends activations and gradients, if all
// messages have the largest size. For estimates of a sweep's duration. 0 for one stage, or a rate
// of 0 (unlimited).
double NetworkSeconds(const RunSpec& spec, uint64_t rate_bits_per_second);

}  // namespace longhaul::cli
