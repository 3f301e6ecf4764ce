// Measures the errors of a codec on a tensor.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"
#include "codec/codec.h"
#include "codec/tool/npy.h"

namespace longhaul::codec {

struct Errors {
  double bits_per_element = 0;
  double mse = 0, relative_l2 = 0, cosine = 0;
  uint64_t compared = 0;  // elements that are finite on both sides
  uint64_t nonfinite_tiles = 0;
};

double BitsPerElement(size_t bytes, const Shape& shape);

// Leaves out bits_per_element and nonfinite_tiles.
Errors CompareArrays(std::span<const float> expected, std::span<const float> got);

// The receiver has its own context: sides of codecs with state have separate stores.
StatusOr<Errors> MeasureCodec(const Codec& codec, const NpyArray& array, const Context& context,
                              const Context& of_receiver = {});

// Converts any array to fp32, exactly.
StatusOr<NpyArray> Widen(const NpyArray& array);
// Returns the values of an fp32 array.
std::span<const float> Floats(const NpyArray& array);

}  // namespace longhaul::codec
