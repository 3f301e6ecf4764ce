// Memory that attention takes besides what it keeps as every layer does. A part of memory.cc: the
// terms of StageMemory.
//
// Internal to planner. Pure, thread-safe.
#pragma once

#include <cstdint>

#include "run/file/run_spec.h"

namespace longhaul::coordinator {

// On a GPU, of a block and a token: what keys and values have more where each head of queries gets
// its own, since no kernel for fp32 shares them (worker/stage/model/attention.cc). In numbers.
uint64_t RepeatedKeysAndValues(const RunSpec& spec);

// What a block keeps of a microbatch's earlier slices for the later ones: keys and values; and
// where autograd keeps what attention reads, for each but the first slice its own and all earlier
// ones once more, unless heads get copies of their own. Recorded passes of a GPU keep copies for
// the later slices, and their gradients.
uint64_t PastBytes(const RunSpec& spec, uint64_t tokens, bool on_gpu);

// Returns the bytes of the keys and values that one block keeps of a microbatch's earlier slices in
// the pass without adapters (train.dpo). They stay until the last slice has run forward.
uint64_t ReferencePastBytes(const RunSpec& spec, uint64_t tokens);

// Who attends to whom in a microbatch; all blocks share it.
uint64_t MaskBytes(const RunSpec& spec, bool on_gpu);

// What attention over windows keeps more of a block and a token where masks compute it: it gives
// its output in chunks, which are joined. A mean over layers with a window and without. In numbers.
uint64_t JoinedChunks(const RunSpec& spec, bool on_gpu);

// Capped scores, a chunk at a time: what they were before and after the cap and the softmax, their
// gradients, and what products make of these.
uint64_t ScoreBytes(const RunSpec& spec);

// Sums that fused kernels make of queries' gradients, in fp32. Each document's are as long as it
// is, and a tile of them more.
uint64_t QueryGradientBytes(const RunSpec& spec);

}  // namespace longhaul::coordinator
