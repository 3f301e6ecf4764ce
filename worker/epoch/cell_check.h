// Checks whether a worker can carry out a cell, that is, a stage of one replica. Pure.
#pragma once

#include <string>
#include <vector>

#include "run/plan/plan.h"
#include "worker/measuring/device.h"

namespace longhaul::worker {

// Returns one sentence for each reason why a worker with the devices `offered` cannot carry out the
// cell; empty if it can. A cell needs one device for each of its ranks, all of one kind.
std::vector<std::string> CannotDo(const Assignment& assignment, const Cell& cell,
                                  const std::vector<WorkerDevice>& offered);

}  // namespace longhaul::worker
