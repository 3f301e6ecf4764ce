// Sections of sdp4bit (format.h) on the CPU: the same bytes on every instruction set.
//
// Threads: pure functions. The caller checks the arguments; no function throws or allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "codec/rounding.h"

namespace longhaul::codec::sdp4bit::cpu {

// A part of a section: it begins with number `first`, a multiple of 2048 and of `group`, out of
// `of` numbers. `group` divides 2048 or is a multiple of it. Several threads may write, or read,
// parts of a section at a time.
struct Part {
  uint64_t first = 0, of = 0;
  uint32_t group = 0;
};

// `section` has SectionBytes(part.of, part.group). `number` is the index of values[0] in `noise`, a
// multiple of 64. Null noise: rounds to nearest. The last part writes the zeros behind the last
// number.
void Encode(std::span<const float> values, const Part& part, const RoundingNoise* noise,
            uint64_t number, std::byte* section);
void Decode(const std::byte* section, const Part& part, std::span<float> out);

// Encodes and decodes a whole section.
inline void Encode(std::span<const float> values, uint32_t group, const RoundingNoise* noise,
                   uint64_t number, std::byte* section) {
  Encode(values, {.of = values.size(), .group = group}, noise, number, section);
}
inline void Decode(const std::byte* section, uint32_t group, std::span<float> out) {
  Decode(section, {.of = out.size(), .group = group}, out);
}

// Work in place on a multiple of kHadamard numbers.
void Transform(std::span<float> values);
void TransformBack(std::span<float> values);

}  // namespace longhaul::codec::sdp4bit::cpu
