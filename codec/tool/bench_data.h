// Tensors for benchmarks.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "codec/codec.h"
#include "codec/tool/npy.h"

namespace longhaul::codec {

// Returns a shape with about `elements` elements in `samples` samples of whole tokens. If a sample
// has fewer elements than `channels`, it gets one token with fewer channels. kInvalidArgument if a
// sample would have no element. `samples` must not be 0.
StatusOr<Shape> BenchShape(uint64_t elements, uint32_t samples, uint32_t channels);

// Makes values that are about standard normal. With `outliers`, about one value in 97 is 25 times
// as large. The values are the same at every call.
StatusOr<NpyArray> MakeActivations(Dtype dtype, const Shape& shape, bool outliers);

// Makes token ids for the codec predict, one for each token: random ids below `vocabulary` or, with
// `equal`, all 0. The ids are the same at every call.
std::vector<uint32_t> MakeIds(const Shape& shape, uint32_t vocabulary, bool equal);

}  // namespace longhaul::codec
