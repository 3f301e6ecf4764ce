// Selects on a GPU the gradients that tagc sends: the same ones as codec/tagc/select.h selects on
// the CPU. The sketches of tagc (codec/tagc/sketch.h) are made and read on the CPU only. Every
// pointer is to memory of the stream's device, which must stay valid until the queued work is done.
//
// Calls only queue work: they allocate nothing, never wait, and may be captured in a CUDA graph.
// Threads: pure functions. Errors: kInvalidArgument, before anything is queued, for null or
// misaligned memory and impossible sizes; kInternal if the CUDA runtime refuses.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/cuda/stream.h"
#include "base/status.h"
#include "codec/cuda/cuda_codec.h"

namespace longhaul::codec::cuda {

// Returns the bytes of scratch memory that TagcSelect needs for `count` values.
size_t TagcSelectScratchBytes(uint64_t count);
// As Select of select.h, for 1 to 2^31 values. `keep` must be from 1 to `count`. Overwrites all
// BitmapWords(count) words of `bitmap_dev`. `scratch` has TagcSelectScratchBytes(count), aligned to
// 16 bytes, and needs no initial value.
Status TagcSelect(const float* values_dev, uint64_t count, uint64_t keep, uint64_t* bitmap_dev,
                  DeviceSpan scratch, const longhaul::cuda::Stream& stream);

}  // namespace longhaul::codec::cuda
