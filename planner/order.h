// Chooses by simulation how many microbatches a plan's stages keep in flight and in which order
// activations and gradients leave. Pure.
#pragma once

#include <stop_token>

#include "base/status.h"
#include "planner/planner.h"
#include "run/file/run_spec.h"
#include "run/plan/plan.h"

namespace longhaul::coordinator {

// True if the rates of all edges, except those between replicas, are known in both directions: by
// an interface or by the pair of workers.
bool RatesAreKnown(const Plan& plan);

// Sets depth and activation_lead of each cell (Setting in run/plan/plan.h), with a reason for
// people. Takes a plan whose cells have their maximum depth and whose network is set. Adds to the
// prediction the step with unlimited depths, and a sentence if the search for depths left something
// out. Depths keep a margin: messages may take schedule::kUnforeseenDelay longer than measured, and
// links may be schedule::kUnforeseenRate times as fast. If rates are not known, and in a trial,
// depths stay at the maximum. kFailedPrecondition if the run file's order needs a larger depth;
// kCancelled once `stop` is requested.
Status ChooseOrder(const RunSpec& spec, Plan* plan, const std::stop_token& stop = {},
                   Effort effort = Effort::kWhole);

// As ChooseOrder, for a replica beside a slower one with as many stages, whose order is already
// chosen. Saves the search: takes the slower replica's activation leads, and its depths as far as
// the memory of the cells allows. The step must then not be longer than the slower replica's, or at
// most schedule::kDepthTolerance longer than with the maximum depth, also with the margins applied.
// Else searches as ChooseOrder does.
Status ChooseOrderLike(const RunSpec& spec, const Plan& slower, Plan* plan,
                       const std::stop_token& stop = {});

}  // namespace longhaul::coordinator
