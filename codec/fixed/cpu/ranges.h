// fixed on a range of a sample's tiles, with the best instruction set of this CPU. Several threads
// may work on different ranges of one tensor at the same time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/fixed/format.h"
#include "codec/tile.h"

namespace longhaul::codec::fixed::cpu {

// Returns the largest magnitude over the range's finite tiles, as bits of fp32.
uint32_t LargestOfRange(const TensorView& in, const Params& params, const TileRange& range);

// Writes the scales and codes of the range; `exponent` is the sample's c (format.h). Returns the
// number of tiles with a NaN or an infinity.
uint64_t EncodeRange(const TensorView& in, const Params& params, const RoundingNoise& noise,
                     const TileRange& range, int exponent, std::byte* payload);

void DecodeRange(const std::byte* payload, const Params& params, const TileRange& range,
                 int exponent, const MutableTensorView& out);

}  // namespace longhaul::codec::fixed::cpu
