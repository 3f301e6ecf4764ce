// Searches values for keys of the run file that may be `auto` and that only whole plans can decide:
// pipeline.replicas, pipeline.slices, group.tensor and group.expert. Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "base/status.h"
#include "planner/auto_search.h"
#include "planner/planner.h"

namespace longhaul::coordinator {

// Minimum number of tokens in a slice: with fewer, the device's overhead for each call matters, and
// the plan does not know it.
inline constexpr uint32_t kLeastSliceTokens = 64;
// A step that is longer than the shortest by at most this share counts as equal, if it has fewer
// slices or fewer replicas.
inline constexpr double kAlikeSteps = 0.01;

// Returns the search for the first open key. Its requests settle this key and do not change the
// other keys. nullopt: no key is open. `request` must outlive the search.
//
// - pipeline.replicas: each number that divides the step's microbatches and for which there are
//   workers (request.workers are candidates, at most candidates_for of them), with the stages that
//   the run file asks for or, where that is auto, as many as there are workers for each replica.
//   All train the same microbatches in a step. The fewest within kAlikeSteps are taken. They are
//   compared by trials, whose steps the prediction keeps of the numbers that are not planned whole.
// - pipeline.slices: powers of two that divide the context into slices of kLeastSliceTokens or
//   more. A slice's compute and codecs count as an equal share of a microbatch's. The fewest within
//   kAlikeSteps are taken.
// - group: each group that is left open (config::GroupsLeftOpen) and that all workers have devices
//   for. The fastest is taken; of equal ones the fewest ranks, then the fewest parts of experts.
//   kFailedPrecondition where a given number of ranks is more than a worker's devices.
StatusOr<std::optional<AutoSearch>> SearchForOpenKey(const PlanRequest& request);

}  // namespace longhaul::coordinator
