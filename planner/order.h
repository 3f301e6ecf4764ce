// Chooses by simulation how many microbatches a plan's stages keep in flight and in which order
// activations and gradients leave. Pure.
#pragma once

#include <stop_token>

#include "base/status.h"
#include "planner/planner.h"
#include "run/file/run_spec.h"
#include "run/plan/plan.h"
#include "run/schedule/search_limit.h"

namespace longhaul::coordinator {

// True if the rates of all edges, except edges between replicas, are known in both directions. A
// rate is known if the plan has it for an interface of the edge or for the pair of workers.
bool RatesAreKnown(const Plan& plan);

// Sets depth (microbatches in flight) and activation_lead of each cell (Setting in
// run/plan/plan.h), with a reason for people. Takes a plan of one replica whose cells have their
// maximum depth and whose network is set. In the prediction, sets the step with unlimited depths,
// the reason for the order, and cut_short.
//
// Depths keep a margin: messages may take schedule::kUnforeseenDelay longer than measured, and
// links may be faster than measured by the factor schedule::kUnforeseenRate. Depths stay at the
// maximum if rates are not known, if the run file sets pipeline.depth, `send_order:
// activations-first` or a schedule that needs no search, and with Effort::kTrial.
//
// kFailedPrecondition: send_order is activations-first, and memory does not hold all microbatches
// of a step. kCancelled once `stop` is requested. Once `limit` is over, depths are searched no
// further.
Status ChooseOrder(const RunSpec& spec, Plan* plan, const std::stop_token& stop = {},
                   Effort effort = Effort::kWhole, const schedule::SearchLimit& limit = {});

// As ChooseOrder, for a replica beside a slower one with as many stages, whose order is already
// chosen (`slower`, a finished plan). To save the search, tries the slower replica's leads, and its
// depths as far as the memory of the cells allows. Keeps these settings if one of two conditions
// holds, on the measured network and with each margin: the step is no longer than the slower
// replica's, or it is longer than this plan's step with maximum depths by at most the share
// schedule::kDepthTolerance. Otherwise searches as ChooseOrder does. Errors: as of ChooseOrder.
Status ChooseOrderLike(const RunSpec& spec, const Plan& slower, Plan* plan,
                       const std::stop_token& stop = {}, const schedule::SearchLimit& limit = {});

}  // namespace longhaul::coordinator
