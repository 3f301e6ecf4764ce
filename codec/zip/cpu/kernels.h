// Encodes and decodes whole tensors on the CPU: payloads of zip in the format of format.h, which
// need no alignment. `parallel` may be null.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "codec/codec.h"

namespace longhaul::codec::zip::cpu {

// Writes the payload, and returns its size in bytes. `in` must have elements; `payload` must have
// two bytes for each of them. Adds the number of elements that are not finite after rounding to
// bf16 to *nonfinite.
uint64_t Encode(const TensorView& in, Parallel* parallel, std::byte* payload, uint64_t* nonfinite);

// Decodes a payload, which may be hostile. Returns kInvalidArgument if it is no payload for the
// shape of `out`; `out` may then be partly written.
Status Decode(std::span<const std::byte> payload, Parallel* parallel, const MutableTensorView& out);

}  // namespace longhaul::codec::zip::cpu
