// For tests and ablations: taco in double precision, by Algorithm 1 of the paper, with its symbols
// and its two numbers for each block.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "codec/taco/format.h"

namespace longhaul::codec::taco {

struct ReferenceBlock {
  bool finite = true;
  double sigma = 0, alpha = 1, s = 1;
  double c = 0;           // the number that format.h stores instead of alpha and s
  std::vector<double> q;  // the codes' numbers
};

struct ReferenceResult {
  std::vector<ReferenceBlock> blocks;
  // The elements decoded with alpha and s, as the paper does, and those decoded with c. To decode,
  // alpha, s and c are rounded to fp32 if they are in the normal range of fp32.
  std::vector<double> decoded, decoded_by_c;
};

// Steps that may be left out, to measure their effect.
struct Ablation {
  bool transform = true;  // H
  bool rescale = true;    // false: alpha is 1
  bool scale = true;      // false: s is 1
  double tau = 1;         // cancels if `scale` is true
  double epsilon = 1e-30;
};

// Encodes and decodes `x`.
ReferenceResult Reference(std::span<const double> x, const Params& params,
                          const Ablation& ablation = {});

// Reads c and the codes' numbers from a blob with this number of elements, by the definition of the
// formats. c is negative if step 4 of format.h scaled the block up.
std::vector<ReferenceBlock> Unpack(std::span<const std::byte> blob, uint64_t elements,
                                   const Params& params);

// Returns the number for which a code stands; NaN for codes of NaNs and infinities.
double NumberOf(Format format, uint8_t code);
// Returns the nearest number of the format, ties to an even code. For values beyond the largest
// number, returns the largest number with the value's sign.
double NearestNumber(Format format, double value);

}  // namespace longhaul::codec::taco
