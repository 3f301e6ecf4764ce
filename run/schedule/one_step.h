// Simulates one step: drives the executor's own policies with a virtual clock.
//
// A step has the phases that the executor drives: passes (all forwards and backwards), sums of
// gradients (of a tied matrix; over replicas of the stage), the agreement on the gradient norm, the
// optimizer, new parameters from replicas. Replicas are simulated one by one, as if all of them
// ended their passes at the same time.
//
// Model of the passes: a stage computes one thing at a time, a slice forward or backward. A message
// between neighbours occupies the egress of the sender and the ingress of the receiver; all
// transfers through an interface share it max-min fairly. Messages of one link direction go in
// order, several links of one sender at once; a message arrives `latency` after its last byte left.
// Codecs run in parallel with compute on their own thread, one message at a time per stage. Pure
// and deterministic; O(stages * microbatches * slices) events of O(stages) each.
#pragma once

#include <stop_token>

#include "base/status.h"
#include "run/schedule/cost.h"
#include "run/schedule/simulation.h"

namespace longhaul::schedule {

// `cost` must be one that Simulate() accepts (simulator.h), with a schedule that does not overlap
// steps.
StatusOr<Simulation> SimulateOneStep(const PipelineCost& cost, const std::stop_token& stop);

}  // namespace longhaul::schedule
