// The tied matrix of a group's stage (replicas/tied_matrix.h), of which each rank holds some rows.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/status.h"
#include "worker/stage/replicas/tied_matrix.h"

namespace longhaul::worker {

// Runs `call` on all ranks' threads at once, as GroupStage does.
using OnAllRanks = std::function<Status(const std::function<Status(uint32_t rank)>& call)>;

// Returns the matrix whose rows the ranks hold one after another, or null if they hold none.
// `of_ranks`: the matrix of each rank's stage. They and what `run` needs must outlive the result.
std::unique_ptr<TiedMatrix> JoinTied(std::vector<TiedMatrix*> of_ranks, OnAllRanks run);

}  // namespace longhaul::worker
