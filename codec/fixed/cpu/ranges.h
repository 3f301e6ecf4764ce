// Encodes and decodes a range of a sample's tiles in the format of fixed, with the instruction set
// in use (codec/simd/targets.h). Several threads may work on different ranges of one tensor at the
// same time. `payload` is the start of the tensor's payload, `exponent` the sample's c (format.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/fixed/format.h"
#include "codec/tile.h"

namespace longhaul::codec::fixed::cpu {

// Returns the largest magnitude in the tiles of the range that have no NaN or infinity, as bits of
// fp32; 0 if there are no such tiles.
uint32_t LargestOfRange(const TensorView& in, const Params& params, const TileRange& range);

// Writes the scales and codes of the range. Returns the number of tiles with a NaN or an infinity.
uint64_t EncodeRange(const TensorView& in, const Params& params, const RoundingNoise& noise,
                     const TileRange& range, int exponent, std::byte* payload);

void DecodeRange(const std::byte* payload, const Params& params, const TileRange& range,
                 int exponent, const MutableTensorView& out);

}  // namespace longhaul::codec::fixed::cpu
