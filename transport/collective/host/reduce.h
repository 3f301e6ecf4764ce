// Reductions in host memory.
#pragma once

#include <cstdint>
#include <span>

#include "transport/collective/communicator.h"

namespace longhaul::collective::host {

// Sets each of the `count` elements out[i] to the sum in[0][i] + in[1][i] + ... (kSum) or to the
// largest of in[0][i], in[1][i], ... (kMax). Computes in fp32, in this order, and rounds once to
// `dtype`, which must not be kBytes. Needs at least one input. `out` may be one of the inputs.
void Reduce(std::span<const void* const> in, void* out, uint64_t count, Dtype dtype,
            Reduction reduction);

}  // namespace longhaul::collective::host
