// Measures the errors of a codec on a tensor.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"
#include "codec/codec.h"
#include "codec/python/host.h"
#include "codec/tool/npy.h"

namespace longhaul::codec {

// How a decoded tensor x' differs from the original x.
struct Errors {
  double bits_per_element = 0;
  // mse: the mean of (x' - x)^2. relative_l2: |x' - x| / |x| in L2 norms, or |x' - x| if x is 0.
  // cosine: of the angle between x and x'; 1 if both are 0, and 0 if only one is 0.
  double mse = 0, relative_l2 = 0, cosine = 0;
  uint64_t compared = 0;  // elements that are finite in x and x'; others are ignored
  uint64_t nonfinite_tiles = 0;
};

// Returns the bits per element of a blob of `bytes` bytes; 0 if the shape has no elements.
double BitsPerElement(size_t bytes, const Shape& shape);

// Compares two arrays of the same size. Does not set bits_per_element and nonfinite_tiles.
Errors CompareArrays(std::span<const float> expected, std::span<const float> got);

// A codec at the two ends of a link. These are two objects if it is a class of Python, whose
// objects may have state, and else one. Never null.
struct BothEnds {
  std::shared_ptr<const Codec> sender, receiver;
};
// Makes both ends of a codec string. `host` runs classes of Python. Errors: also those of
// python::Ready.
StatusOr<BothEnds> OpenCodec(const std::string& text, const python::Host* host);

// Encodes with `context`, decodes with `of_receiver`, and compares. If the codec has state, the two
// contexts need separate stores.
StatusOr<Errors> MeasureCodec(const BothEnds& codec, const NpyArray& array, const Context& context,
                              const Context& of_receiver = {});

// Converts any array to fp32, exactly.
StatusOr<NpyArray> Widen(const NpyArray& array);
// Returns the values of an fp32 array, valid as long as the array.
std::span<const float> Floats(const NpyArray& array);

}  // namespace longhaul::codec
