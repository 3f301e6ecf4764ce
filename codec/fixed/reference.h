// For tests: fixed in double precision, by the definition in format.h.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "codec/fixed/format.h"

namespace longhaul::codec::fixed {

struct ReferenceTile {
  bool finite = true;
  double scale = 0;
  std::vector<int> codes;  // q, one for each element of the tile
};

struct ReferenceResult {
  std::vector<int> exponents;        // by sample
  std::vector<ReferenceTile> tiles;  // of the tensor
  std::vector<double> decoded;       // elements
};

// Encodes and decodes `x`. Stochastic rounding calls noise(i), which returns r in [0, 1) for
// element i, where the padding of tiles counts as elements.
ReferenceResult Reference(std::span<const double> x, const Shape& shape, const Params& params,
                          const std::function<double(uint64_t)>& noise);

// Reads the exponents and tiles of a blob bit by bit, by format.h. Does not set `decoded`.
ReferenceResult Unpack(std::span<const std::byte> blob, const Shape& shape, const Params& params);

}  // namespace longhaul::codec::fixed
