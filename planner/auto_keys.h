// Sets up the search for keys of the run file that are `auto` and that need a plan for each value:
// pipeline.replicas (data-parallel replicas), pipeline.slices (sequence chunks of a microbatch),
// group.tensor (ranks that share a stage) and group.expert (parts of a block's experts). Pure; any
// thread. PlanBestValue (auto_search.h) runs the search.
#pragma once

#include <cstdint>
#include <optional>

#include "base/status.h"
#include "planner/auto_search.h"
#include "planner/planner.h"

namespace longhaul::coordinator {

// Minimum number of tokens in a slice (sequence chunk). With fewer tokens, the device's overhead
// for each call matters, and the plan does not know this overhead.
inline constexpr uint32_t kLeastSliceTokens = 64;
// Fewer slices or replicas are preferred if their step is longer than the shortest by at most this
// share.
inline constexpr double kAlikeSteps = 0.01;

// Returns the search for the first key that is still auto, in the order below. The search's
// requests set this key and leave the other keys as they are, so MakePlan then searches the next
// key. nullopt: no key is auto. The search keeps a reference to `request`.
//
// - pipeline.replicas: tries each number that divides the step's microbatches and for which there
//   are workers. At most candidates_for of request.workers are used. A replica has the stages that
//   the run file asks for or, with auto, as many as its share of the workers allows. A step trains
//   the same microbatches with every number. The fewest within kAlikeSteps are taken. Each number
//   gets a trial, and promising ones a whole plan (auto_search.h). For the other numbers the plan's
//   prediction has the step time of the trial.
// - pipeline.slices: tries powers of two that divide the context into slices of kLeastSliceTokens
//   or more. A slice counts with an equal share of a microbatch's compute and codec times. The
//   fewest within kAlikeSteps are taken.
// - group: tries each group that the run file leaves open (config::GroupsLeftOpen) and for which
//   all workers have devices. The fastest is taken; among equal ones the one with the fewest ranks,
//   then with the fewest parts of experts.
//
// kFailedPrecondition: only group.expert is auto, and a worker has fewer devices than the run
// file's group.tensor. There are no other errors.
StatusOr<std::optional<AutoSearch>> SearchForOpenKey(const PlanRequest& request);

}  // namespace longhaul::coordinator
