// tah on ranges of tiles, with the best instruction set of this CPU. Ranges of one sample may be
// worked on by several threads at once. A range begins with an allocation tile and at a multiple of
// 8 tiles, so that the pivots of two ranges share no byte.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/tah/format.h"
#include "codec/tile.h"

namespace longhaul::codec::tah::cpu {

// Steps 0 and 1: the bits of the largest magnitude over the range's finite tiles, and, where `keys`
// is not null, the sort keys (entropy.h) of its allocation tiles at their places in it.
uint32_t SurveyRange(const TensorView& in, const Layout& layout, const TileRange& range,
                     int32_t* keys);

// Step 2: sets the bits of the `fours` lowest keys, 0 < fours < count, at equal keys of those with
// the lower index. Writes whole words of 64 bits.
void MarkFours(const int32_t* keys, uint64_t count, uint64_t fours, std::byte* bits);

// Steps 3 to 5; the sample's precision bits are in the payload. Returns the number of tiles with a
// NaN or an infinity.
uint64_t EncodeRange(const TensorView& in, const Params& params, const Layout& layout,
                     const RoundingNoise& noise, const TileRange& range, int exponent,
                     std::byte* payload);

// The sample's precision bits are as many as there is room for.
void DecodeRange(const std::byte* payload, const Layout& layout, const TileRange& range,
                 int exponent, const MutableTensorView& out);

}  // namespace longhaul::codec::tah::cpu
