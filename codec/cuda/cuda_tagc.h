// Chooses the values that tagc keeps on a GPU, with the CPU's bits. Every pointer is to memory of
// the stream's device. The CPU makes and reads sketches.
//
// Calls only queue work: they allocate nothing, never wait, and may be captured in a CUDA graph.
// Threads: pure functions. Errors, before anything is queued: kInvalidArgument for null or
// misaligned memory and impossible sizes, kInternal for a refusal of the CUDA runtime.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/cuda/stream.h"
#include "base/status.h"
#include "codec/cuda/cuda_codec.h"

namespace longhaul::codec::cuda {

size_t TagcSelectScratchBytes(uint64_t count);
// Runs select.h's Select. `scratch` is aligned to 16 bytes. At most 2^31 values.
Status TagcSelect(const float* values_dev, uint64_t count, uint64_t keep, uint64_t* bitmap_dev,
                  DeviceSpan scratch, const longhaul::cuda::Stream& stream);

}  // namespace longhaul::codec::cuda
