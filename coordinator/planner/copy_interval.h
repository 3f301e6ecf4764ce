// How often the stages of a run copy their state to another worker, where that is left to us. Pure.
#ifndef LONGHAUL_COORDINATOR_PLANNER_COPY_INTERVAL_H_
#define LONGHAUL_COORDINATOR_PLANNER_COPY_INTERVAL_H_

#include <cstdint>
#include <string>

#include "run/file/run_spec.h"
#include "run/plan/plan.h"

namespace longhaul::coordinator {

// Bytes of one copy of the cell's state: master parameters and the optimizer's moments, in fp32.
uint64_t StateBytes(const RunSpec& spec, uint32_t vocabulary, const Cell& cell);

struct CopyInterval {
  uint64_t steps = 0;  // 0: no copies beside checkpoints
  // "every 27 steps (33 s of work at risk): ..."; empty for 0.
  std::string reason;
};

// As the run file says, else (`auto`) so often that copies cost at most 2% of a step: they are on
// their way for half of the time, which the slowest stage's state takes over what its line has left
// beside the training; of a spare's line, everybody's.
CopyInterval CopyIntervalOf(const RunSpec& spec, const Plan& plan);

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_PLANNER_COPY_INTERVAL_H_
