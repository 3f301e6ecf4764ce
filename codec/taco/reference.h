// For tests and ablations: taco in double precision, by Algorithm 1 and in the symbols of the
// paper, with its two numbers a block.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "codec/taco/format.h"

namespace longhaul::codec::taco {

struct ReferenceBlock {
  bool finite = true;
  double sigma = 0, alpha = 1, s = 1;
  double c = 0;           // what format.h stores instead of alpha and s
  std::vector<double> q;  // the codes' numbers
};

struct ReferenceResult {
  std::vector<ReferenceBlock> blocks;
  // Elements, by alpha and s as the paper decodes, and by c. All three scales are rounded to fp32
  // where that has them as normal numbers.
  std::vector<double> decoded, decoded_by_c;
};

// What is left out, to measure what it is worth.
struct Ablation {
  bool transform = true;  // H
  bool rescale = true;    // alpha; else 1
  bool scale = true;      // s; else 1
  double tau = 1;         // any number where `scale`
  double epsilon = 1e-30;
};

ReferenceResult Reference(std::span<const double> x, const Params& params,
                          const Ablation& ablation = {});

// The contents of a blob with this number of elements: c, and the codes' numbers by the definition
// of the formats. A negative c is the one that format.h's step 4 has raised.
std::vector<ReferenceBlock> Unpack(std::span<const std::byte> blob, uint64_t elements,
                                   const Params& params);

// The number of a code; NaN for NaNs and infinities.
double NumberOf(Format format, uint8_t code);
// The nearest number, ties to the one with an even code; beyond the largest it is that.
double NearestNumber(Format format, double value);

}  // namespace longhaul::codec::taco
