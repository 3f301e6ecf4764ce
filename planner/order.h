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
// people. Takes a plan whose cells have their maximum depth and whose network is set. Sets in the
// prediction the step with unlimited depths, and cut_short if the pipeline was too large for a full
// search. Depths keep a margin: messages may take schedule::kUnforeseenDelay longer than measured,
// and links may be faster than measured by the factor schedule::kUnforeseenRate. Depths stay at the
// maximum if rates are not known, if the run file sets pipeline.depth or a schedule that needs no
// search, and with Effort::kTrial. kFailedPrecondition if the run file's order of sending needs
// more depth than memory allows; kCancelled once `stop` is requested.
Status ChooseOrder(const RunSpec& spec, Plan* plan, const std::stop_token& stop = {},
                   Effort effort = Effort::kWhole);

// As ChooseOrder, for a replica beside a slower one with as many stages, whose order is already
// chosen. Saves the search: takes the slower replica's activation leads, and its depths as far as
// the memory of the cells allows. Keeps them if the step is no longer than the slower replica's, or
// longer by at most the share schedule::kDepthTolerance than this plan's with its maximum depths,
// both as measured and with the margins. Otherwise searches as ChooseOrder does.
Status ChooseOrderLike(const RunSpec& spec, const Plan& slower, Plan* plan,
                       const std::stop_token& stop = {});

}  // namespace longhaul::coordinator
