// Tensors for benchmarks.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "codec/codec.h"
#include "codec/tool/npy.h"

namespace longhaul::codec {

// Returns a shape of about `elements` in `samples` of whole tokens. kInvalidArgument if a sample
// would have no token.
StatusOr<Shape> BenchShape(uint64_t elements, uint32_t samples, uint32_t channels);

// Makes about normal values; with `outliers`, one value in 97 is 25 times as large. The same every
// time.
StatusOr<NpyArray> MakeActivations(Dtype dtype, const Shape& shape, bool outliers);

// Makes tokens for predict: random ones of the vocabulary, or all the same (`equal`). The same
// every time.
std::vector<uint32_t> MakeIds(const Shape& shape, uint32_t vocabulary, bool equal);

}  // namespace longhaul::codec
