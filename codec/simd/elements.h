// Between tensors of any dtype and fp32, for the CPU kernels that work on one tile at a time; those
// on batches of tiles have tensor-inl.h.
//
// Threads: pure functions.
#ifndef LONGHAUL_CODEC_SIMD_ELEMENTS_H_
#define LONGHAUL_CODEC_SIMD_ELEMENTS_H_

#include <cstddef>
#include <cstdint>

#include "codec/codec.h"

namespace longhaul::codec {

// Elements [offset, offset + count) of the tensor to `out`, then zeros: `size` in all.
void LoadElements(const TensorView& in, uint64_t offset, size_t count, size_t size, float* out);

// The first `count` values, which it may change, to elements [offset, offset + count). What lies
// outside of the dtype's range becomes its largest number: lossy codecs make no infinities out of
// numbers. NaNs stay.
void StoreElements(const MutableTensorView& out, uint64_t offset, size_t count, float* values);

}  // namespace longhaul::codec

#endif  // LONGHAUL_CODEC_SIMD_ELEMENTS_H_
