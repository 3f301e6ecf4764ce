// How often the stages of a run copy their state to another worker (recovery.every: auto). Pure.
#pragma once

#include <cstdint>
#include <string>

#include "run/file/run_spec.h"
#include "run/plan/plan.h"

namespace longhaul::coordinator {

// Bytes of one copy of the cell's state: master parameters and optimizer state, in fp32.
uint64_t StateBytes(const RunSpec& spec, uint32_t vocabulary, const Cell& cell);

struct CopyInterval {
  uint64_t steps = 0;  // 0: no copies beside checkpoints
  // "every 27 steps (33 s of work at risk): ..."; empty for 0.
  std::string reason;
};

// What the run file says; with `auto` as often as copies cost at most 2 % of a step. Copies are
// then under way for half of the time. A copy takes as long as the slowest stage needs for its
// state over the rate that training leaves on its line; the line of a spare is shared by all
// stages.
CopyInterval CopyIntervalOf(const RunSpec& spec, const Plan& plan);

}  // namespace longhaul::coordinator
