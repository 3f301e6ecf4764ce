// The 8-bit formats and a block's scale: steps 2 to 6 of format.h. Arithmetic only: CPU and GPU
// kernels share this file.
#pragma once

#include <bit>
#include <cstdint>

#include "codec/convert.h"
#include "codec/scale.h"
#include "codec/taco/format.h"

namespace longhaul::codec::taco {

// A floating-point format, described by how it differs from fp32. To get the magnitude of a code,
// shift the code's bits without the sign left by kShift, take the result as the bits of an fp32
// number, and multiply the number by kUp, which makes up for the different exponent biases. This
// also holds for subnormal codes.
template <Format kFormat>
struct Float8;
template <>
struct Float8<Format::kE4m3> {
  static constexpr int kShift = 20;         // mantissa bits: 23 of fp32 - 3 of a code
  static constexpr float kUp = 0x1p120f;    // the biases are 127 and 7
  static constexpr float kLeast = 0x1p-6f;  // the smallest normal number
  // The last bit of a sum with this number is worth as much as the last bit of a subnormal code. So
  // adding this number rounds a value to a subnormal code.
  static constexpr float kSubnormal = 0x1p14f;
  static constexpr uint32_t kLargest = 0x7e;  // code of the largest number
};
template <>
struct Float8<Format::kE5m2> {
  static constexpr int kShift = 21;
  static constexpr float kUp = 0x1p112f;  // the biases are 127 and 15
  static constexpr float kLeast = 0x1p-14f;
  static constexpr float kSubnormal = 0x1p7f;
  static constexpr uint32_t kLargest = 0x7b;
};

// Returns Q, the largest number of the format.
inline constexpr float LargestNumber(Format format) {
  return format == Format::kE4m3 ? 448.0f : format == Format::kE5m2 ? 57344.0f : 127.0f;
}
// Returns the fp32 number nearest to 1 / (Q * B). `block`: B.
inline constexpr float UnitOf(Format format, uint32_t block) {
  return 1.0f / (LargestNumber(format) * static_cast<float>(block));
}

// Returns the code of the nearest number, ties to even. Values beyond the largest number get its
// code. `value` must not be a NaN.
template <Format kFormat>
constexpr uint8_t ToCode(float value) {
  if constexpr (kFormat == Format::kInt8) {
    const float bounded = value > 127.0f ? 127.0f : value < -127.0f ? -127.0f : value;
    return static_cast<uint8_t>(std::bit_cast<uint32_t>(bounded + kRoundMagic));
  } else {
    using F = Float8<kFormat>;
    const auto bits = std::bit_cast<uint32_t>(value);
    const uint32_t magnitude = bits & 0x7fffffff;
    const uint32_t subnormal =
        std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + F::kSubnormal) -
        std::bit_cast<uint32_t>(F::kSubnormal);
    constexpr uint32_t kBias = std::bit_cast<uint32_t>(F::kLeast) - (uint32_t{1} << 23);
    const uint32_t normal =
        (magnitude - kBias + (uint32_t{1} << (F::kShift - 1)) - 1 + (magnitude >> F::kShift & 1)) >>
        F::kShift;
    uint32_t code = magnitude < std::bit_cast<uint32_t>(F::kLeast) ? subnormal : normal;
    code = magnitude >= std::bit_cast<uint32_t>(LargestNumber(kFormat)) ? F::kLargest : code;
    return static_cast<uint8_t>(code | (bits >> 24 & 0x80));
  }
}

// Returns whether a code is a finite number.
template <Format kFormat>
constexpr bool IsNumber(uint8_t code) {
  if constexpr (kFormat == Format::kInt8) return true;
  if constexpr (kFormat != Format::kInt8) {
    return (code & 0x7fu) <= Float8<kFormat>::kLargest;
  }
}

// Returns the number for which a finite code stands.
template <Format kFormat>
constexpr float FromCode(uint8_t code) {
  if constexpr (kFormat == Format::kInt8) {
    return static_cast<float>(static_cast<int8_t>(code));
  } else {
    using F = Float8<kFormat>;
    const uint32_t magnitude = uint32_t{code & 0x7fu} << F::kShift;
    const uint32_t sign = uint32_t{code & 0x80u} << 24;
    return std::bit_cast<float>(magnitude | sign) * F::kUp;
  }
}

// The factors of steps 2 and 4, the limit of step 4, and the NaN of step 2.
inline constexpr float kLowered = 0x1p-16f, kRaised = 0x1p64f;
inline constexpr float kTiny = 0x1p-100f;
inline constexpr uint32_t kNanBits = 0x7fc00000;

// Numbers of steps 3 to 6 that follow from a block's M.
struct Scaling {
  // `largest`: M, which is finite. `lowered`: step 2 has scaled the block. `largest_number`: Q.
  // `unit`: UnitOf.
  constexpr Scaling(float largest, bool lowered, float largest_number, float unit) {
    tiny = largest < kTiny;
    const float raised = tiny ? largest * kRaised : largest;
    const float product = raised * unit * (lowered ? 1 / kLowered : 1.0f);
    c = tiny && largest > 0 ? -product : product;
    to_codes = largest > 0 ? largest_number / raised : 0.0f;
  }
  bool tiny = false;   // y is multiplied by kRaised
  float c = 0;         // the stored c
  float to_codes = 0;  // Q / M; 0 if M is 0
};

// The decoder's factors for the stored c: x = v * first * second.
struct ScaleOf {
  constexpr explicit ScaleOf(float c) : first(c < 0 ? -c : c), second(c < 0 ? 1 / kRaised : 1.0f) {}
  float first, second;
};

}  // namespace longhaul::codec::taco
