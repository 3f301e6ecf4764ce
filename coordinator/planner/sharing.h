// What stages take that share a GPU, and how to have few of them. Pure.
#ifndef LONGHAUL_COORDINATOR_PLANNER_SHARING_H_
#define LONGHAUL_COORDINATOR_PLANNER_SHARING_H_

#include <cstdint>
#include <span>
#include <stop_token>
#include <vector>

#include "base/status.h"
#include "coordinator/planner/planner.h"
#include "run/plan/plan.h"

namespace longhaul::coordinator {

// Makes the compute of such cells slower, in the plans of all replicas of a run, whose workers
// these are, replica by replica. Their layers were timed one worker at a time. While a stage
// computes, others on its GPU do so for the share of the step that they are busy, and all get equal
// parts of it; how busy they are follows from a simulation of the slower stages. Plans of replays
// stay as they are: nobody computes. Takes plans whose network is set. kCancelled once `stop` is
// requested.
Status SlowDownSharedDevices(const RunSpec& spec, std::span<const CandidateWorker> workers,
                             std::span<Plan> replicas, const std::stop_token& stop);

bool AnyShareDevices(std::span<const CandidateWorker> workers);

// So many of `workers`, or more, by their places: of those that share a GPU the first, as many of
// each GPU as all GPUs need to have.
std::vector<uint32_t> SpreadOverDevices(std::span<const CandidateWorker> workers, uint32_t count);

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_PLANNER_SHARING_H_
