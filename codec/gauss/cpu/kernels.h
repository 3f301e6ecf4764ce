// gauss on the CPU: payloads in the format of format.h. The caller has checked the arguments.
// `payload` has Layout::end bytes and needs no alignment.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/codec.h"
#include "codec/gauss/format.h"

namespace longhaul::codec::gauss::cpu {

// Returns the bytes of Encode's scratch memory, which holds q of the blocks of one sample.
uint64_t ScratchBytes(const Layout& layout);

// Returns the number of blocks with a NaN or an infinity.
uint64_t Encode(const TensorView& in, const Params& params, std::byte* scratch, std::byte* payload);

// Returns kInvalidArgument if a sample's exponent is out of range.
Status Decode(const std::byte* payload, const Params& params, const MutableTensorView& out);

}  // namespace longhaul::codec::gauss::cpu
