// The identities of the project (docs/design/architecture.md).
#ifndef LONGHAUL_BASE_IDS_H_
#define LONGHAUL_BASE_IDS_H_

#include <cstdint>
#include <string>

#include "base/strong.h"

namespace longhaul {

// A run's id as people see it: "<name>-<6 characters>".
using RunId = Strong<struct RunIdTag, std::string>;
// One assignment of stages to worker incarnations. Starts at 1; 0 is "none".
using Epoch = Strong<struct EpochTag, uint64_t>;
// A worker's persistent id (UUID text in its state directory).
using WorkerId = Strong<struct WorkerIdTag, std::string>;
// One start of a worker process (UUID text).
using Incarnation = Strong<struct IncarnationTag, std::string>;
// Position in the pipeline, 0 = the stage that holds the embedding.
using StageIndex = Strong<struct StageIndexTag, uint32_t>;
// What two cells of a run send each other: an edge of its plan (run/plan/plan.h).
using EdgeId = Strong<struct EdgeIdTag, uint32_t>;

// Optimizer step. The first one is 1; "step 0" is the untrained model.
using Step = Strong<struct StepTag, uint64_t>;
// Number of a microbatch within its global step, from 0.
using Microbatch = Strong<struct MicrobatchTag, uint32_t>;

enum class Direction : uint8_t {
  kForward = 0,   // activations, from stage s to s + 1
  kBackward = 1,  // activation gradients, from stage s + 1 to s
};

}  // namespace longhaul

#endif  // LONGHAUL_BASE_IDS_H_
