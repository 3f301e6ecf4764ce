// Converts between tensors of any dtype and fp32, for CPU kernels that take one tile at a time.
// Kernels on batches of tiles use tensor-inl.h.
//
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/codec.h"

namespace longhaul::codec {

// Loads elements [offset, offset + count) of the tensor into `out`, and adds zeros up to `size`.
void LoadElements(const TensorView& in, uint64_t offset, size_t count, size_t size, float* out);

// Stores the first `count` values, which it may change, to elements [offset, offset + count).
// Values outside the dtype's range become its largest number, because lossy codecs turn no number
// into an infinity. NaNs stay.
void StoreElements(const MutableTensorView& out, uint64_t offset, size_t count, float* values);

}  // namespace longhaul::codec
