// The steps of tah (format.h) on a range of a sample's tiles, with the instruction set in use
// (codec/simd/targets.h). Several threads may work on different ranges of one sample at the same
// time. A range must begin where an allocation tile begins. The number of the range's first tile
// must also be a multiple of 8, so that the pivots of two ranges share no byte. `in`, `out` and
// `payload` are the whole tensor and the whole payload; range.sample chooses the sample.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/tah/format.h"
#include "codec/tile.h"

namespace longhaul::codec::tah::cpu {

// Steps 0 and 1 of format.h. Returns the largest magnitude in the range's finite tiles, as bits of
// fp32. If `keys` is not null, it has room for all allocation tiles of the sample: keys[i] gets the
// sort key (entropy.h) of allocation tile i, for each i in the range.
uint32_t SurveyRange(const TensorView& in, const Layout& layout, const TileRange& range,
                     int32_t* keys);

// Step 2: writes a sample's precision bits. Bit i is 1 for the `fours` allocation tiles with the
// lowest keys[i], which get 4 bits an element; among equal keys the lower index comes first.
// `count`: number of keys; 0 < fours < count. Writes `count` bits to `bits`, zero-padded to a
// multiple of 8 bytes.
void MarkFours(const int32_t* keys, uint64_t count, uint64_t fours, std::byte* bits);

// Steps 3 to 5: writes the range's scales, zeros, pivots, codes and fourth bits. Before the call,
// the payload must hold the sample's precision bits (MarkFours), and zeros in the section of
// pivots. `exponent`: c of step 0, which depends on the largest magnitude of the whole sample.
// Returns the number of tiles with a NaN or an infinity.
uint64_t EncodeRange(const TensorView& in, const Params& params, const Layout& layout,
                     const RoundingNoise& noise, const TileRange& range, int exponent,
                     std::byte* payload);

// Decodes the range. The sample's precision bits must be valid (PrecisionFits of bits.h).
void DecodeRange(const std::byte* payload, const Layout& layout, const TileRange& range,
                 int exponent, const MutableTensorView& out);

}  // namespace longhaul::codec::tah::cpu
