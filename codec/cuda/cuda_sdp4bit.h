// codec/sdp4bit on a GPU, with the CPU's bytes: every pointer is to memory of the stream's device.
//
// Calls only queue work: they allocate nothing, never wait, and may be captured in a CUDA graph.
// Threads: pure functions. Errors, before anything is queued: kInvalidArgument for null or
// misaligned memory and invalid groups, kInternal for a refusal of the CUDA runtime.
#pragma once

#include <cstdint>
#include <span>

#include "base/cuda/stream.h"
#include "base/status.h"
#include "codec/rounding.h"

namespace longhaul::codec::cuda {

// Encode and Decode of cpu/kernels.h; `section_dev` is aligned to 16 bytes.
Status Sdp4bitEncode(const float* values_dev, uint64_t count, uint32_t group,
                     const RoundingNoise* noise, uint64_t first, void* section_dev,
                     const longhaul::cuda::Stream& stream);
Status Sdp4bitDecode(const void* section_dev, uint32_t group, float* out_dev, uint64_t count,
                     const longhaul::cuda::Stream& stream);
// Works in place; `count` is a multiple of kHadamard.
Status Sdp4bitTransform(float* values_dev, uint64_t count, bool back,
                        const longhaul::cuda::Stream& stream);
// Writes the mean of the gradients of all replicas, summed in their order: sections of
// Transformed(count) numbers in groups of kGradientGroup, and parts[own], `count` numbers that are
// not transformed. `parts` itself is in host memory.
Status Sdp4bitMean(std::span<const void* const> parts, uint32_t own, uint64_t count, float* out_dev,
                   const longhaul::cuda::Stream& stream);

}  // namespace longhaul::codec::cuda
