// Measures the errors of a codec on a tensor.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"
#include "codec/codec.h"
#include "codec/tool/npy.h"

namespace longhaul::codec {

// The differences between a tensor x and its decoded form x'.
struct Errors {
  double bits_per_element = 0;  // of the blob
  double mse = 0;               // mean of (x' - x)^2
  double relative_l2 = 0;       // |x' - x| / |x|; |x' - x| if x is 0
  double cosine = 0;            // of the angle between x and x'
  uint64_t compared = 0;  // number of elements that are finite in both; the others are ignored
  uint64_t nonfinite_tiles = 0;  // EncodeResult::nonfinite_tiles
};

// Returns 0 for an empty tensor.
double BitsPerElement(size_t bytes, const Shape& shape);

// Compares two arrays of the same size. Does not set bits_per_element and nonfinite_tiles.
Errors CompareArrays(std::span<const float> expected, std::span<const float> got);

// Encodes the array with `context`, decodes the blob with `of_receiver`, and compares. There are
// two contexts because the two sides of a codec with state have separate stores.
StatusOr<Errors> MeasureCodec(const Codec& codec, const NpyArray& array, const Context& context,
                              const Context& of_receiver = {});

// Converts any array to fp32, exactly.
StatusOr<NpyArray> Widen(const NpyArray& array);
// Returns the values of an fp32 array.
std::span<const float> Floats(const NpyArray& array);

}  // namespace longhaul::codec
