// Memory of a stage, term by term. Pure. All sizes in bytes.
#ifndef LONGHAUL_COORDINATOR_PLANNER_MEMORY_H_
#define LONGHAUL_COORDINATOR_PLANNER_MEMORY_H_

#include <cstdint>

#include "run/file/run_spec.h"

namespace longhaul::coordinator {

// Of the networks in worker/stage. `vocabulary` is the tokenizer's, here and below; embedding and
// head have a row for each, or as many as the model says. First stage: the token embedding, in
// family gpt also that of positions. Last: norm and head; a tied head is the first stage's
// embedding. A block, with h = hidden, k = channels of the keys, i = intermediate:
//   gpt    two norms (2h each), qkv (3h^2 + 3h), projection (h^2 + h), and the MLP's two layers
//          (4h^2 + 4h, 4h^2 + h)
//   llama  two norms (h each), queries and projection (h^2 each), keys and values (hk each), gate,
//          up and down (hi each); with qkv_bias h + 2k more
uint64_t StageParameters(const ModelSpec& model, uint32_t vocabulary, uint32_t layers, bool first,
                         bool last);

// Of a worker and its libraries.
inline constexpr uint64_t kProgramBytes = uint64_t{256} << 20;

struct StageMemory {
  uint64_t fixed = 0;       // whatever the depth is
  uint64_t per_flight = 0;  // for each microbatch in flight
  uint64_t At(uint32_t depth) const { return fixed + depth * per_flight; }
};
// fixed      = 16 bytes a parameter: fp32 value, gradient, two moments;
//            + 12 on a CPU: a checkpoint's snapshot of value and moments, which a GPU's stage has
//              in the host's memory, where nobody reckons with it
//            + with bf16 the casts of blocks' and head's parameters, 2 bytes each
//            + what autograd keeps of one microbatch while it is recomputed
//            + 4 boundary tensors (one being received and sent in each direction)
//            + on the last stage twice the logits of one microbatch in fp32 while it is computed:
//              those, and their copy or gradient
//            + kProgramBytes
//            + on a GPU 192 MiB of workspaces, which cuBLAS keeps for each stream and thread, and
//              what passes need for as long as one runs: 8 boundary tensors
// per_flight = what autograd keeps of one microbatch of B x T tokens:
//              gpt: a block 16h values a token (input, norm, qkv, attention, residual, norm, 4h
//              before and 4h after GELU), of 4 bytes, or with bf16 2 bytes but for 2h (input,
//              residual);
//              llama: a block 8h + 2k + 4i values a token (input, its norm before and after the
//              weight, queries, keys, values, attention, residual, its norm before and after, gate,
//              SiLU, up, product), of 4 bytes, or with bf16 2 bytes but for 4h (input, residual,
//              norms before the weight);
//              last stage: the final norm with its input, and the log-softmax of the logits;
//            + the stage's input and output
//            + on a GPU, where each has memory of its own that was set apart when its passes were
//              recorded: what its forward needs in passing, a boundary tensor and on the last stage
//              the logits, in fp32 and as the products compute; and what LibTorch takes too much,
//              since it takes 20 MiB at a time
//            With recomputation only the stage's input and output, on a GPU, too.
// Attention keeps no T x T matrix: the CPU's and the GPU's fused kernels do not. memory_parity_test
// and memory_gpu_test compare with what LibTorch takes.
StageMemory MemoryOf(const RunSpec& spec, uint32_t vocabulary, uint32_t layers, bool first,
                     bool last, bool on_gpu = false);

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_PLANNER_MEMORY_H_
