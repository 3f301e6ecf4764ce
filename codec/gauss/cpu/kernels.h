// Encodes and decodes whole tensors on the CPU: payloads of gauss in the format of format.h. The
// caller has checked the arguments. `payload` has Layout::end bytes and needs no alignment.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/codec.h"
#include "codec/gauss/format.h"

namespace longhaul::codec::gauss::cpu {

// Returns the bytes of Encode's scratch memory: an int16, q, for each block of one sample. The
// memory must be aligned to 2 bytes.
uint64_t ScratchBytes(const Layout& layout);

// Writes the payload. Returns the number of blocks with a NaN or an infinity.
uint64_t Encode(const TensorView& in, const Params& params, std::byte* scratch, std::byte* payload);

// Returns kInvalidArgument if a sample's exponent is out of range.
Status Decode(const std::byte* payload, const Params& params, const MutableTensorView& out);

}  // namespace longhaul::codec::gauss::cpu
