// Runs the codec sdp4bit (codec/sdp4bit/format.h) on a GPU, with the same bytes as on the CPU.
// Pointers with the suffix _dev are to memory of the stream's device, which must stay valid until
// the queued work is done. `noise` and the array `parts` are read during the call only.
//
// Calls only queue work: they allocate nothing, never wait, and may be captured in a CUDA graph. If
// `count` is 0, they do nothing.
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
// Writes the mean of the gradients of all data-parallel replicas to `out_dev`, `count` numbers.
// `parts`, an array in host memory, has one device pointer for each replica, 1 to 64. The parts are
// added in this order. parts[own] has `count` fp32 numbers that are not transformed; every other
// part is a section of Transformed(count) numbers in groups of kGradientGroup.
Status Sdp4bitMean(std::span<const void* const> parts, uint32_t own, uint64_t count, float* out_dev,
                   const longhaul::cuda::Stream& stream);

}  // namespace longhaul::codec::cuda
