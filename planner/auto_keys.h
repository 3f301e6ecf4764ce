// Searches the best values of keys of the run file that are `auto` and that only whole plans can
// decide: pipeline.replicas, pipeline.slices, group.tensor and group.expert. Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "base/status.h"
#include "planner/auto_search.h"
#include "planner/planner.h"

namespace longhaul::coordinator {

// Minimum number of tokens in a slice, a sequence chunk. With fewer, the device's overhead for each
// call matters, and the plan does not know it.
inline constexpr uint32_t kLeastSliceTokens = 64;
// Fewer slices or replicas are preferred if their step is longer than the shortest by at most this
// share.
inline constexpr double kAlikeSteps = 0.01;

// Returns the search for the first key that is still auto. Its requests set this key and leave the
// other keys as they are. nullopt: no key is auto. `request` must outlive the search.
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
//   then with the fewest parts of experts. kFailedPrecondition: the run file gives a number of
//   ranks, and a worker has fewer devices.
StatusOr<std::optional<AutoSearch>> SearchForOpenKey(const PlanRequest& request);

}  // namespace longhaul::coordinator
