// taco on the CPU: payloads in the format of format.h. The caller has checked the arguments.
// Payloads need no alignment here.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/taco/flat.h"

namespace longhaul::codec::taco::cpu {

// As TacoEncodeFlat, TacoDecodeFlat and TacoReduce of flat.h, but cannot fail. `parallel` may be
// null. Encode returns the number of blocks with a NaN or an infinity.
uint64_t Encode(const void* in, Dtype dtype, uint64_t elements, const Params& params,
                Parallel* parallel, std::byte* payload);

void Decode(const std::byte* payload, const Params& params, Parallel* parallel, void* out,
            Dtype dtype, uint64_t elements);

void Reduce(const TacoReduceArgs& args, Parallel* parallel);

}  // namespace longhaul::codec::taco::cpu
