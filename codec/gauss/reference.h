// For tests: gauss in double precision, by the definition of the transform and of the quantizer.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "codec/gauss/format.h"

namespace longhaul::codec::gauss {

struct ReferenceBlock {
  int byte = 0;  // s, the stored scale byte
  // For each element j if u >= 0, or -1 - j if u is negative. Empty if `byte` is 0 or 255.
  std::vector<int> codes;
};

struct ReferenceResult {
  std::vector<int> exponents;          // E, by sample
  std::vector<ReferenceBlock> blocks;  // of the tensor
  std::vector<double> decoded;         // elements
};

// Encodes and decodes `x`.
ReferenceResult Reference(std::span<const double> x, const Shape& shape, const Params& params);

// Reads the contents of a blob bit by bit, by format.h. Does not set `decoded`.
ReferenceResult Unpack(std::span<const std::byte> blob, const Shape& shape, const Params& params);

// Returns the positive levels. Finds them by Lloyd's iteration with numerical integrals,
// independently of make_levels.py.
std::vector<double> LloydMax(uint32_t bits);

}  // namespace longhaul::codec::gauss
