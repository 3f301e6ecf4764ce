// Predicts the step time of a point (points.h) from the point's plan and from the links that the
// sweep sets. The prediction in the plan, by the coordinator, is for the links as they were
// measured. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "base/status.h"
#include "run/file/run_spec.h"
#include "run/plan/plan.h"

namespace longhaul::cli {

// Times of one optimizer step.
struct PointPrediction {
  double simulated_seconds = 0;  // by the simulator
  double bound_seconds = 0;      // lower bound
  double floor_seconds = 0;      // bound_seconds without the pipeline bubble
  std::string bottleneck;        // the resource that gives bound_seconds: "egress of stage 1"
};

// Predicts a step of `spec` as `plan` assigns it, with every interface at this rate (0: unlimited)
// and every link with this one-way delay. Errors: those of the simulator, for a plan that cannot be
// carried out.
StatusOr<PointPrediction> PredictPoint(const Plan& plan, const RunSpec& spec,
                                       uint64_t rate_bits_per_second, absl::Duration delay);

// Returns for how many seconds of a step the busiest worker sends activations and gradients, if all
// messages have the largest size. For estimates of a sweep's duration. Returns 0 for one stage, or
// for a rate of 0 (unlimited).
double NetworkSeconds(const RunSpec& spec, uint64_t rate_bits_per_second);

}  // namespace longhaul::cli
