// For tests and ablations: TAH-Quant in double precision, step by step in the symbols of the paper.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "codec/tah/format.h"

namespace longhaul::codec::tah {

struct ReferenceTile {
  bool finite = true;
  bool transformed = false;
  int bits = 3;
  uint32_t pivot = 0;
  double scale = 0, zero = 0;
  std::vector<int> codes;
};

struct ReferenceResult {
  std::vector<int> exponents;        // c, by sample
  std::vector<double> entropies;     // H in nats, by allocation tile of the tensor
  std::vector<bool> fours;           // by allocation tile of the tensor
  std::vector<ReferenceTile> tiles;  // of the tensor
  std::vector<double> decoded;       // elements
};

// Variants that the format does not have, to measure their effect.
struct Ablation {
  int low_bits = 3;        // bits of tiles with low entropy; the other tiles have one bit more
  bool swap_pivot = true;  // swap the pivot with element 0 before the transform
};

// Encodes and decodes `x`. `noise(i)` returns r in [0, 1) for element i, where i also counts the
// padding of tiles. It is not called for rounding to nearest. `fours`: the allocation tiles that
// get 4 bits; null: the entropies decide.
ReferenceResult Reference(std::span<const double> x, const Shape& shape, const Params& params,
                          const std::function<double(uint64_t)>& noise,
                          const std::vector<bool>* fours, const Ablation& ablation = {});

// Reads the contents of a blob bit by bit, by format.h. Does not set `entropies` and `decoded`.
ReferenceResult Unpack(std::span<const std::byte> blob, const Shape& shape, const Params& params);

}  // namespace longhaul::codec::tah
