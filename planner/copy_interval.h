// Decides how often the stages of a run copy their state to another worker (recovery.every: auto).
// Pure.
#pragma once

#include <cstdint>
#include <string>

#include "run/file/run_spec.h"
#include "run/plan/plan.h"

namespace longhaul::coordinator {

// Bytes of one copy of the state of a cell (one stage of one replica): StageStateBytes in memory.h.
uint64_t StateBytes(const RunSpec& spec, uint32_t vocabulary, const Cell& cell);

struct CopyInterval {
  uint64_t steps = 0;  // 0: no copies beside checkpoints
  // "every 27 steps (33 s of work at risk): ..."; empty for 0.
  std::string reason;
};

// Returns the run file's interval. With `auto`, returns the shortest interval with which copies
// make a step at most 2 % longer; copies are then under way for half of the time. The slowest stage
// decides how long a copy takes, at the rate that training leaves on its line. All stages share the
// line of a spare.
CopyInterval CopyIntervalOf(const RunSpec& spec, const Plan& plan);

}  // namespace longhaul::coordinator
