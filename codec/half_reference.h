// For tests: rounding to fp16 in double precision, by the definition.
#pragma once

#include <algorithm>
#include <cmath>

namespace longhaul::codec {

enum class HalfRounding { kNearestEven, kUp, kDown };

// Rounds to fp16. |value| must be below 65520. In [2^e, 2^(e+1)) the fp16 numbers are the multiples
// of 2^(e - 10). Below 2^-14 they are the multiples of 2^-24.
inline double RoundToHalf(double value, HalfRounding rounding) {
  if (value == 0) return 0;
  const double spacing = std::ldexp(1.0, std::max(std::ilogb(value) - 10, -24));
  const double steps = value / spacing;
  switch (rounding) {
    case HalfRounding::kUp:
      return std::ceil(steps) * spacing;
    case HalfRounding::kDown:
      return std::floor(steps) * spacing;
    case HalfRounding::kNearestEven:
      break;
  }
  return std::nearbyint(steps) * spacing;
}

}  // namespace longhaul::codec
