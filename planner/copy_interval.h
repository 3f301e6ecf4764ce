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
  uint64_t steps = 0;  // from one copy to the next; 0: no copies beside checkpoints
  // "every 27 steps (33 s of work at risk): ..."; empty for 0.
  std::string reason;
};

// Returns the run file's interval. With `auto`, returns the shortest interval with which copies
// make training at most 2 % slower; copies are then under way for at most half of the time. The
// stage with the slowest copy decides. A copy has 60 % of the rate that training leaves on the
// worker's egress. With recovery.spares, one spare may have to receive the copies of all stages.
// `plan` must have its prediction. An unknown egress rate counts as 100 Mbit/s.
CopyInterval CopyIntervalOf(const RunSpec& spec, const Plan& plan);

// Returns a sentence about a run whose workers are on machines of their own: a lost disk loses it,
// because no state is copied elsewhere. "": something protects it. `copy_every`: as in Assignment.
std::string LostDiskWarning(const RunSpec& spec, uint64_t copy_every);

}  // namespace longhaul::coordinator
