// Sections of sdp4bit (format.h) on the CPU: the same bytes on every instruction set.
//
// Threads: pure functions. Arguments are the caller's to check; nothing throws or allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "codec/rounding.h"

namespace longhaul::codec::sdp4bit::cpu {

// Where numbers are in a section: from number `first` on, a multiple of 2048 and of `group`, of
// `of` numbers. `group` divides or is a multiple of 2048. Parts of a section may be written, or
// read, by several threads at a time.
struct Part {
  uint64_t first = 0, of = 0;
  uint32_t group = 0;
};

// `section` has SectionBytes(part.of, part.group). `number` is that of values[0] in `noise`, a
// multiple of 64. Null noise: to nearest. Zeros behind the last number are part of the last part.
void Encode(std::span<const float> values, const Part& part, const RoundingNoise* noise,
            uint64_t number, std::byte* section);
void Decode(const std::byte* section, const Part& part, std::span<float> out);

// All of a section.
inline void Encode(std::span<const float> values, uint32_t group, const RoundingNoise* noise,
                   uint64_t number, std::byte* section) {
  Encode(values, {.of = values.size(), .group = group}, noise, number, section);
}
inline void Decode(const std::byte* section, uint32_t group, std::span<float> out) {
  Decode(section, {.of = out.size(), .group = group}, out);
}

// In place; a multiple of kHadamard numbers.
void Transform(std::span<float> values);
void TransformBack(std::span<float> values);

}  // namespace longhaul::codec::sdp4bit::cpu
