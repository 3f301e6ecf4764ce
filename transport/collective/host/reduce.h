// Reductions in host memory.
#pragma once

#include <cstdint>
#include <span>

#include "transport/collective/communicator.h"

namespace longhaul::collective::host {

// Sets out[i] to in[0][i] + in[1][i] + ..., or to the maximum of these values. Computes in fp32, in
// this order, and rounds once. Needs at least one input; not for kBytes. `out` may be one of the
// inputs.
void Reduce(std::span<const void* const> in, void* out, uint64_t count, Dtype dtype,
            Reduction reduction);

}  // namespace longhaul::collective::host
