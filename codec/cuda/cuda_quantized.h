// Dequantizes matrices (codec/quantized/format.h) on a GPU, with the same bits as on the CPU.
// Pointers with the suffix _dev are to memory of the stream's device, aligned to 16 bytes, which
// must stay valid until the queued work is done.
//
// Calls only queue work: they allocate nothing, never wait, and may be captured in a CUDA graph. A
// matrix without elements: they do nothing.
// Threads: pure functions. Errors: kInvalidArgument for null or misaligned memory; kInternal if the
// CUDA runtime refuses. After an error nothing is queued.
#pragma once

#include <cstdint>

#include "base/cuda/stream.h"
#include "base/status.h"
#include "codec/quantized/int8.h"

namespace longhaul::codec::cuda {

// Writes a whole matrix to `out_dev`: fp32, or with `bf16` the bits of bf16.
Status Nf4Dequantize(const void* stored_dev, uint64_t elements, bool bf16, void* out_dev,
                     const longhaul::cuda::Stream& stream);
Status Int8Dequantize(const void* stored_dev, quantized::MatrixShape shape, bool bf16,
                      void* out_dev, const longhaul::cuda::Stream& stream);

}  // namespace longhaul::codec::cuda
