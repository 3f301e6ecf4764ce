// zip on the CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "codec/codec.h"

namespace longhaul::codec::zip::cpu {

// `in` has elements; `payload` has room for two bytes of each. Returns the payload's bytes, and
// adds the number of elements that are not finite to *nonfinite.
uint64_t Encode(const TensorView& in, Parallel* parallel, std::byte* payload, uint64_t* nonfinite);

// `payload` may have any content. kInvalidArgument if it is not a payload of this tensor.
Status Decode(std::span<const std::byte> payload, Parallel* parallel, const MutableTensorView& out);

}  // namespace longhaul::codec::zip::cpu
