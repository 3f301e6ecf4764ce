// fixed on the CPU: payloads as format.h has them. The arguments have been checked; `payload` has
// Layout::end bytes and needs no alignment.
#ifndef LONGHAUL_CODEC_FIXED_CPU_KERNELS_H_
#define LONGHAUL_CODEC_FIXED_CPU_KERNELS_H_

#include <cstddef>
#include <cstdint>

#include "codec/codec.h"
#include "codec/fixed/format.h"

namespace longhaul::codec::fixed::cpu {

// Returns the number of tiles with a NaN or an infinity.
uint64_t Encode(const TensorView& in, const Params& params, const Context& context,
                std::byte* payload);

// kInvalidArgument when a sample's exponent is out of range.
Status Decode(const std::byte* payload, const Params& params, Parallel* parallel,
              const MutableTensorView& out);

}  // namespace longhaul::codec::fixed::cpu

#endif  // LONGHAUL_CODEC_FIXED_CPU_KERNELS_H_
