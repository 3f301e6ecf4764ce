// Stages of several workers on one GPU: how much slower they are, and how to avoid them. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <stop_token>
#include <vector>

#include "base/status.h"
#include "planner/planner.h"
#include "run/plan/plan.h"

namespace longhaul::coordinator {

// Makes the compute of cells that share a GPU slower in the plans of all replicas of a run.
// `workers` are the workers of these plans, replica by replica. Layers were timed one worker at a
// time; here stages that compute at the same time get equal parts of the GPU, and how often they do
// follows from a simulation with the slower stages. Plans of replays stay as they are, because
// nobody computes. Takes plans whose network is set. kCancelled once `stop` is requested.
Status SlowDownSharedDevices(const RunSpec& spec, std::span<const CandidateWorker> workers,
                             std::span<Plan> replicas, const std::stop_token& stop);

bool AnyShareDevices(std::span<const CandidateWorker> workers);

// Places of at least `count` of `workers`, with as few as possible on each GPU: of the workers that
// share a GPU the first ones, the same number from each GPU.
std::vector<uint32_t> SpreadOverDevices(std::span<const CandidateWorker> workers, uint32_t count);

}  // namespace longhaul::coordinator
