// For tests: sdp4bit in double precision, by the paper's text and independent of the kernels.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace longhaul::codec::sdp4bit::reference {

// The 32 x 32 Sylvester matrix times each 32 numbers, by its definition: (-1)^popcount(i & j).
std::vector<double> Transform(std::span<const float> values);

// The possible results of a number: the two neighbouring multiples of its group's step.
struct Neighbours {
  double below = 0, above = 0, step = 0;
};
std::vector<Neighbours> Quantized(std::span<const float> values, uint32_t group);

}  // namespace longhaul::codec::sdp4bit::reference
