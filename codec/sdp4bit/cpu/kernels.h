// Encodes and decodes sections of sdp4bit (format.h) on the CPU. All instruction sets give the same
// bytes.
//
// Threads: pure functions. The caller checks the arguments; no function throws or allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "codec/rounding.h"

namespace longhaul::codec::sdp4bit::cpu {

// A part of a section. Several threads may encode, or decode, different parts of a section at the
// same time.
struct Part {
  // The first number of the part, a multiple of 2048 and of `group`; and how many numbers the whole
  // section has.
  uint64_t first = 0, of = 0;
  uint32_t group = 0;  // numbers of a group: divides 2048, or is a multiple of 2048
};

// Encode and decode a part, which has as many numbers as `values` or `out`. `section` is the whole
// section, SectionBytes(part.of, part.group) bytes. `noise`: null to round to nearest. `number`:
// index of values[0] in `noise`, a multiple of 64. Encoding the last part also writes the padding.
void Encode(std::span<const float> values, const Part& part, const RoundingNoise* noise,
            uint64_t number, std::byte* section);
void Decode(const std::byte* section, const Part& part, std::span<float> out);

// Encode and decode a whole section.
inline void Encode(std::span<const float> values, uint32_t group, const RoundingNoise* noise,
                   uint64_t number, std::byte* section) {
  Encode(values, {.of = values.size(), .group = group}, noise, number, section);
}
inline void Decode(const std::byte* section, uint32_t group, std::span<float> out) {
  Decode(section, {.of = out.size(), .group = group}, out);
}

// Transform gradients (format.h), and undo the transform. Both work in place on a multiple of
// kHadamard numbers.
void Transform(std::span<float> values);
void TransformBack(std::span<float> values);

}  // namespace longhaul::codec::sdp4bit::cpu
