// Converts whole tensors on the CPU to elements of the dtype `wire`, and back. `parallel` may be
// null. The byte pointers need no alignment.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/codec.h"

namespace longhaul::codec::plain::cpu {

// Returns the number of elements of `in` that are not finite.
uint64_t Encode(const TensorView& in, Dtype wire, Parallel* parallel, std::byte* out);
void Decode(const std::byte* in, Dtype wire, Parallel* parallel, const MutableTensorView& out);

}  // namespace longhaul::codec::plain::cpu
