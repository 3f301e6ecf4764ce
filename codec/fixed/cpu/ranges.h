// fixed on ranges of tiles, with the best instruction set of this CPU. Ranges of one tensor may be
// worked on by several threads at once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/fixed/format.h"
#include "codec/tile.h"

namespace longhaul::codec::fixed::cpu {

// The bits of the largest magnitude over the range's finite tiles.
uint32_t LargestOfRange(const TensorView& in, const Params& params, const TileRange& range);

// Scales and codes. Returns the number of tiles with a NaN or an infinity.
uint64_t EncodeRange(const TensorView& in, const Params& params, const RoundingNoise& noise,
                     const TileRange& range, int exponent, std::byte* payload);

void DecodeRange(const std::byte* payload, const Params& params, const TileRange& range,
                 int exponent, const MutableTensorView& out);

}  // namespace longhaul::codec::fixed::cpu
