// For tests: sdp4bit in double precision, by the paper's text and independent of the kernels.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace longhaul::codec::sdp4bit::reference {

// Multiplies each 32 numbers by the 32 x 32 Sylvester matrix, by its definition: element (i, j) is
// (-1)^popcount(i & j). Pads the last numbers with zeros.
std::vector<double> Transform(std::span<const float> values);

// The two multiples of the group's step around a number. A decoded number must be one of the two.
struct Neighbours {
  double below = 0, above = 0, step = 0;
};
std::vector<Neighbours> Quantized(std::span<const float> values, uint32_t group);

}  // namespace longhaul::codec::sdp4bit::reference
