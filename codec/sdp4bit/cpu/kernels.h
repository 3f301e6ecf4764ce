// Sections of sdp4bit (format.h) on the CPU: the same bytes on every instruction set.
//
// Threads: pure functions. Arguments are the caller's to check; nothing throws or allocates.
#ifndef LONGHAUL_CODEC_SDP4BIT_CPU_KERNELS_H_
#define LONGHAUL_CODEC_SDP4BIT_CPU_KERNELS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "codec/rounding.h"

namespace longhaul::codec::sdp4bit::cpu {

// `out` has SectionBytes(values.size(), group). `group` divides or is a multiple of 2048; `first`
// is the number of values[0] in `noise`, a multiple of 64. Null noise: to nearest.
void Encode(std::span<const float> values, uint32_t group, const RoundingNoise* noise,
            uint64_t first, std::byte* out);
// `section` is of out.size() numbers.
void Decode(const std::byte* section, uint32_t group, std::span<float> out);

// In place; a multiple of kHadamard numbers.
void Transform(std::span<float> values);
void TransformBack(std::span<float> values);

}  // namespace longhaul::codec::sdp4bit::cpu

#endif  // LONGHAUL_CODEC_SDP4BIT_CPU_KERNELS_H_
