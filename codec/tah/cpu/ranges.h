// tah on ranges of tiles, with the best instruction set of this CPU. Several threads may work on
// ranges of one sample at once. A range begins with an allocation tile and at a multiple of 8
// tiles, so that the pivots of two ranges share no byte.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/tah/format.h"
#include "codec/tile.h"

namespace longhaul::codec::tah::cpu {

// Steps 0 and 1: returns the bits of the largest magnitude over the range's finite tiles. If `keys`
// is not null, writes the sort keys (entropy.h) of the range's allocation tiles at their indices.
uint32_t SurveyRange(const TensorView& in, const Layout& layout, const TileRange& range,
                     int32_t* keys);

// Step 2: sets the bits of the `fours` lowest keys, 0 < fours < count; among equal keys the lower
// indices. Writes whole words of 64 bits.
void MarkFours(const int32_t* keys, uint64_t count, uint64_t fours, std::byte* bits);

// Steps 3 to 5; the sample's precision bits must be in the payload. Returns the number of tiles
// with a NaN or an infinity.
uint64_t EncodeRange(const TensorView& in, const Params& params, const Layout& layout,
                     const RoundingNoise& noise, const TileRange& range, int exponent,
                     std::byte* payload);

// The number of the sample's precision bits must fit the layout.
void DecodeRange(const std::byte* payload, const Layout& layout, const TileRange& range,
                 int exponent, const MutableTensorView& out);

}  // namespace longhaul::codec::tah::cpu
