// Checks whether a worker can carry out a cell. Pure.
#pragma once

#include <string>
#include <vector>

#include "run/plan/plan.h"
#include "worker/measuring/device.h"

namespace longhaul::worker {

// Lists the requirements of the cell that a worker with these devices cannot meet, one sentence
// each. A cell takes a device for each of its ranks, all of one kind.
std::vector<std::string> CannotDo(const Assignment& assignment, const Cell& cell,
                                  const std::vector<WorkerDevice>& offered);

}  // namespace longhaul::worker
