// Tensors for benchmarks.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "codec/codec.h"
#include "codec/tool/npy.h"

namespace longhaul::codec {

// Returns a shape with about `elements` elements in `samples` samples of whole tokens. A sample of
// fewer elements than `channels` is one token with fewer channels. kInvalidArgument: there are
// fewer elements than samples, or `channels` is 0. `samples` must not be 0.
StatusOr<Shape> BenchShape(uint64_t elements, uint32_t samples, uint32_t channels);

// Makes approximately standard normal values, the same at every call. With `outliers`, about one
// value in 97 is 25 times as large. kInvalidArgument for more than 2^32 elements.
StatusOr<NpyArray> MakeActivations(Dtype dtype, const Shape& shape, bool outliers);

// Makes an id for each token, for the codec predict. The ids are random and below `vocabulary`, the
// same at every call. If `equal`, all ids are 0.
std::vector<uint32_t> MakeIds(const Shape& shape, uint32_t vocabulary, bool equal);

}  // namespace longhaul::codec
