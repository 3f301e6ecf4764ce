// codec/sdp4bit on a GPU, with the same bytes as on the CPU. Every pointer is to memory of the
// stream's device.
//
// Calls only queue work: they allocate nothing, never wait, and may be captured in a CUDA graph.
// Threads: pure functions. Errors: kInvalidArgument for null or misaligned memory and invalid
// sizes; kInternal if the CUDA runtime refuses. After an error nothing is queued.
#pragma once

#include <cstdint>
#include <span>

#include "base/cuda/stream.h"
#include "base/status.h"
#include "codec/rounding.h"

namespace longhaul::codec::cuda {

// As Encode and Decode of codec/sdp4bit/cpu/kernels.h, for a whole section
// (codec/sdp4bit/format.h). `section_dev` is aligned to 16 bytes. `group`: kGradientGroup or
// kDifferenceGroup. `noise`: null to round to nearest. `first`: index of values_dev[0] in `noise`,
// a multiple of 64.
Status Sdp4bitEncode(const float* values_dev, uint64_t count, uint32_t group,
                     const RoundingNoise* noise, uint64_t first, void* section_dev,
                     const longhaul::cuda::Stream& stream);
Status Sdp4bitDecode(const void* section_dev, uint32_t group, float* out_dev, uint64_t count,
                     const longhaul::cuda::Stream& stream);
// Transforms `count` numbers in place (codec/sdp4bit/format.h). With `back`, undoes the transform.
// `count` is a multiple of kHadamard.
Status Sdp4bitTransform(float* values_dev, uint64_t count, bool back,
                        const longhaul::cuda::Stream& stream);
// Writes the mean of the gradients of all replicas to `out_dev`, `count` numbers. `parts` has one
// pointer for each replica, at most 64, and the parts are added in this order. parts[own] has
// `count` fp32 numbers that are not transformed; every other part is a section of
// Transformed(count) numbers in groups of kGradientGroup. The array `parts` is in host memory.
Status Sdp4bitMean(std::span<const void* const> parts, uint32_t own, uint64_t count, float* out_dev,
                   const longhaul::cuda::Stream& stream);

}  // namespace longhaul::codec::cuda
