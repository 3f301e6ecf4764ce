// Encodes and decodes whole tensors on the CPU: payloads of fixed in the format of format.h. The
// caller has checked the arguments. `payload` has Layout::end bytes and needs no alignment.
// `parallel` may be null.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/codec.h"
#include "codec/fixed/format.h"

namespace longhaul::codec::fixed::cpu {

// Writes the payload. Returns the number of tiles with a NaN or an infinity.
uint64_t Encode(const TensorView& in, const Params& params, const Context& context,
                std::byte* payload);

// Returns kInvalidArgument if a sample's exponent is out of range.
Status Decode(const std::byte* payload, const Params& params, Parallel* parallel,
              const MutableTensorView& out);

}  // namespace longhaul::codec::fixed::cpu
