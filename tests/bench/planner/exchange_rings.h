// What the replicas of a plan would take to exchange if parameters travelled along a ring.
#pragma once

#include "base/status.h"
#include "run/file/run_spec.h"
#include "run/plan/plan.h"

namespace longhaul::bench {

// Seconds of the slowest stage's exchange, by rates and latencies of the plan's network, with
// nothing beside it. Gradients go straight to their owners in both.
struct Exchanges {
  double straight = 0;  // parameters from their owner to all others, as they travel
  double ring = 0;      // passed on along the order of replicas that is best for each stage
};
// Tries all orders: for few replicas.
StatusOr<Exchanges> ExchangesOf(const Plan& plan, const RunSpec& spec);

}  // namespace longhaul::bench
