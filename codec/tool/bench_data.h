// Tensors for benchmarks.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "codec/codec.h"
#include "codec/tool/npy.h"

namespace longhaul::codec {

// Returns a shape with about `elements` elements in `samples` samples of whole tokens. If these are
// fewer elements than channels, a token has fewer channels. kInvalidArgument if it would have none.
StatusOr<Shape> BenchShape(uint64_t elements, uint32_t samples, uint32_t channels);

// Makes about standard normal values, the same at every call. With `outliers`, about one value in
// 97 is 25 times as large.
StatusOr<NpyArray> MakeActivations(Dtype dtype, const Shape& shape, bool outliers);

// Makes an id for each token, for the codec predict: random ids below `vocabulary`, the same at
// every call, or only zeros (`equal`).
std::vector<uint32_t> MakeIds(const Shape& shape, uint32_t vocabulary, bool equal);

}  // namespace longhaul::codec
