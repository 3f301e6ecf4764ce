// Reductions in host memory.
#pragma once

#include <cstdint>
#include <span>

#include "transport/collective/communicator.h"

namespace longhaul::collective::host {

// out[i] = in[0][i] + in[1][i] + ..., or the maximum: computed in fp32 in this order, rounded once.
// At least one input; not for kBytes. `out` may be one of the inputs.
void Reduce(std::span<const void* const> in, void* out, uint64_t count, Dtype dtype,
            Reduction reduction);

}  // namespace longhaul::collective::host
