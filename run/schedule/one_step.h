// Simulates one step: drives the executor's own policies with a virtual clock.
//
// A step has the phases of the executor, in this order: the passes, which are all forwards and
// backwards; the sums of gradients, of a tied matrix and over a stage's replicas; the computation
// of the global gradient norm; the optimizer; and the sending of new parameters between replicas.
// A simulation has one replica, as if all replicas ended their passes at the same time.
//
// Model of the passes: a stage computes one thing at a time, a slice forward or backward. A message
// between neighbours uses the sender's egress and the receiver's ingress; all transfers through an
// interface share it max-min fairly. Messages in one direction of a link go one after the other;
// messages of different links go at the same time. A message arrives `latency` after its last byte
// left. Each stage has one codec thread. It handles one message at a time, in parallel with
// compute. Pure and deterministic; O(stages * microbatches * slices) events of O(stages) each.
#pragma once

#include <stop_token>

#include "base/status.h"
#include "run/schedule/cost.h"
#include "run/schedule/simulation.h"

namespace longhaul::schedule {

// `cost` must be one that Simulate() accepts (simulator.h), with a schedule that does not overlap
// steps. kCancelled once `stop` is requested.
StatusOr<Simulation> SimulateOneStep(const PipelineCost& cost, const std::stop_token& stop);

}  // namespace longhaul::schedule
