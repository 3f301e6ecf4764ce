// Converts between tensors of any dtype and fp32, for CPU kernels that handle one tile at a time.
// Kernels that handle batches of tiles use tensor-inl.h instead.
//
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/codec.h"

namespace longhaul::codec {

// Loads elements [offset, offset + count) of the tensor into `out`, and pads `out` with zeros to
// `size` elements.
void LoadElements(const TensorView& in, uint64_t offset, size_t count, size_t size, float* out);

// Stores the first `count` values to elements [offset, offset + count) of the tensor. A value
// outside the dtype's range, also an infinity, becomes the dtype's largest number with the value's
// sign. NaNs stay NaNs. May change `values`.
void StoreElements(const MutableTensorView& out, uint64_t offset, size_t count, float* values);

}  // namespace longhaul::codec
