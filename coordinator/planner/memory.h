// Memory of a stage, term by term. Pure. All sizes in bytes.
#ifndef LONGHAUL_COORDINATOR_PLANNER_MEMORY_H_
#define LONGHAUL_COORDINATOR_PLANNER_MEMORY_H_

#include <cstdint>

#include "base/config/run_spec.h"

namespace longhaul::coordinator {

// Of the GPT in worker/stage. A block: two norms (2h each), qkv (3h^2 + 3h), projection (h^2 + h),
// and the two layers of the MLP (4h^2 + 4h, 4h^2 + h). First stage: token and position embedding.
// Last: norm and head; a tied head is the first stage's embedding.
uint64_t StageParameters(const ModelSpec& model, uint32_t vocabulary, uint32_t layers, bool first,
                         bool last);

struct StageMemory {
  uint64_t fixed = 0;       // whatever the depth is
  uint64_t per_flight = 0;  // for each microbatch in flight
};
// fixed      = 28 bytes a parameter: fp32 value, gradient, two moments (16) and a checkpoint's
//              snapshot of value and moments (12); 2 more with bf16, for the casts of one forward;
//            + the activations of one microbatch while they are recomputed
//            + 4 boundary tensors (one being received and sent in each direction)
//            + 256 MiB for the program and its libraries
// per_flight = what autograd keeps of one microbatch of B x T tokens:
//              a block 16h values a token (input, norm, qkv, attention, residual, norm, 4h before
//              and 4h after GELU), of 4 bytes, or with bf16 2 bytes but for 4h (residuals, norms);
//              last stage: norm, and logits, their fp32 copy and their log-softmax (3 vocabulary);
//            + the stage's input and output
//              With recomputation only the stage's input and output.
// Attention keeps no T x T matrix: the CPU's and the GPU's fused kernels do not.
StageMemory MemoryOf(const RunSpec& spec, uint32_t vocabulary, uint32_t layers, bool first,
                     bool last);

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_PLANNER_MEMORY_H_
