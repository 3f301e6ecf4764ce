// Workers that share a GPU: computes how much slower their stages are, and chooses workers that
// share as few GPUs as possible. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <stop_token>
#include <vector>

#include "base/status.h"
#include "planner/planner.h"
#include "run/plan/plan.h"

namespace longhaul::coordinator {

// Lengthens the compute times of stages that share a GPU, in the plans of all replicas of a run.
// Layers were timed while one worker alone used the GPU. `workers` are the workers of these plans,
// replica by replica. The network of the plans must be set. Stages that compute at the same time
// are assumed to get equal parts of the GPU. Simulations show how often they compute at the same
// time. Plans of replays do not change, because replays do not compute. `replicas` has a plan for
// each replica, all with equally many stages. kCancelled once `stop` is requested.
Status SlowDownSharedDevices(const RunSpec& spec, std::span<const CandidateWorker> workers,
                             std::span<Plan> replicas, const std::stop_token& stop);

// True if two of the workers share a GPU (CandidateWorker::shared_devices).
bool AnyShareDevices(std::span<const CandidateWorker> workers);

// Chooses at least `count` workers (all if there are fewer), with as few as possible on each GPU,
// and returns their indices in `workers`. Takes all workers that share no GPU, and the first
// workers on each shared GPU, up to the same number from each.
std::vector<uint32_t> SpreadOverDevices(std::span<const CandidateWorker> workers, uint32_t count);

}  // namespace longhaul::coordinator
