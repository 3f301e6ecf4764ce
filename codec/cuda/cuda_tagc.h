// Chooses the values that tagc keeps, on a GPU. Chooses the same ones as codec/tagc/select.h does.
// Every pointer is to memory of the stream's device. The CPU makes and reads the sketches.
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
// As Select of select.h, for 1 to 2^31 values. `keep` must be from 1 to `count`. `scratch` is
// aligned to 16 bytes.
Status TagcSelect(const float* values_dev, uint64_t count, uint64_t keep, uint64_t* bitmap_dev,
                  DeviceSpan scratch, const longhaul::cuda::Stream& stream);

}  // namespace longhaul::codec::cuda
