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
  double c = 0;           // format.h stores it instead of alpha and s
  std::vector<double> q;  // the codes' numbers
};

struct ReferenceResult {
  std::vector<ReferenceBlock> blocks;
  // Decoded elements: by alpha and s as the paper decodes, and by c. All three scales are rounded
  // to fp32 if they are normal numbers there.
  std::vector<double> decoded, decoded_by_c;
};

// Steps to leave out, to measure their effect.
struct Ablation {
  bool transform = true;  // H
  bool rescale = true;    // alpha; else 1
  bool scale = true;      // s; else 1
  double tau = 1;         // any number where `scale`
  double epsilon = 1e-30;
};

ReferenceResult Reference(std::span<const double> x, const Params& params,
                          const Ablation& ablation = {});

// Reads a blob with this number of elements: c, and the codes' numbers by the definition of the
// formats. A negative c marks a block that format.h's step 4 scaled up.
std::vector<ReferenceBlock> Unpack(std::span<const std::byte> blob, uint64_t elements,
                                   const Params& params);

// Returns the number of a code; NaN for NaNs and infinities.
double NumberOf(Format format, uint8_t code);
// Returns the nearest number, ties to an even code; above the largest number it returns the
// largest.
double NearestNumber(Format format, double value);

}  // namespace longhaul::codec::taco
