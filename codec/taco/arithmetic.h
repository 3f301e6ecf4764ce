// The 8-bit formats and a block's scale (format.h's steps 2 to 6). Arithmetic only: CPU and GPU
// kernels share it.
#pragma once

#include <bit>
#include <cstdint>

#include "codec/convert.h"
#include "codec/scale.h"
#include "codec/taco/format.h"

namespace longhaul::codec::taco {

// A format of a sign, an exponent and a mantissa, as shifts of fp32's bits. Its bias is kept in the
// difference of both biases: the number of code b is the fp32 number with b's bits behind the sign
// shifted up by kShift, times 2^kUp. That is so for subnormal codes too.
template <Format kFormat>
struct Float8;
template <>
struct Float8<Format::kE4m3> {
  static constexpr int kShift = 20;         // mantissa bits of fp32 beyond the code's
  static constexpr float kUp = 0x1p120f;    // 127 - 7
  static constexpr float kLeast = 0x1p-6f;  // normal number
  // Adding it aligns the last bit of subnormals with the last bit of the sum.
  static constexpr float kSubnormal = 0x1p14f;
  static constexpr uint32_t kLargest = 0x7e;
};
template <>
struct Float8<Format::kE5m2> {
  static constexpr int kShift = 21;
  static constexpr float kUp = 0x1p112f;  // 127 - 15
  static constexpr float kLeast = 0x1p-14f;
  static constexpr float kSubnormal = 0x1p7f;
  static constexpr uint32_t kLargest = 0x7b;
};

// Q.
inline constexpr float LargestNumber(Format format) {
  return format == Format::kE4m3 ? 448.0f : format == Format::kE5m2 ? 57344.0f : 127.0f;
}
// Returns 1 / (Q B) in fp32.
inline constexpr float UnitOf(Format format, uint32_t block) {
  return 1.0f / (LargestNumber(format) * static_cast<float>(block));
}

// Returns the nearest code, ties to even; above the largest number the code of that number. `value`
// is not a NaN.
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

// Whether a code is a finite number.
template <Format kFormat>
constexpr bool IsNumber(uint8_t code) {
  if constexpr (kFormat == Format::kInt8) return true;
  if constexpr (kFormat != Format::kInt8) {
    return (code & 0x7fu) <= Float8<kFormat>::kLargest;
  }
}

// Returns the number of a finite code.
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

inline constexpr float kLowered = 0x1p-16f, kRaised = 0x1p64f;
inline constexpr float kTiny = 0x1p-100f;
inline constexpr uint32_t kNanBits = 0x7fc00000;

// The results of a block's M: steps 3 to 6.
struct Scaling {
  // `largest` is M, finite; `lowered`: step 2 scaled the block. `largest_number`: Q.
  constexpr Scaling(float largest, bool lowered, float largest_number, float unit) {
    tiny = largest < kTiny;
    const float raised = tiny ? largest * kRaised : largest;
    const float product = raised * unit * (lowered ? 1 / kLowered : 1.0f);
    c = tiny && largest > 0 ? -product : product;
    to_codes = largest > 0 ? largest_number / raised : 0.0f;
  }
  bool tiny = false;   // y is multiplied by kRaised
  float c = 0;         // the stored c
  float to_codes = 0;  // Q / M
};

// The inverse steps: x = v first second.
struct ScaleOf {
  constexpr explicit ScaleOf(float c) : first(c < 0 ? -c : c), second(c < 0 ? 1 / kRaised : 1.0f) {}
  float first, second;
};

}  // namespace longhaul::codec::taco
