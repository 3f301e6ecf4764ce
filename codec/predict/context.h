// Checks the tables and token ids in the context of a call of predict, and that a blob agrees with
// them. CPU and GPU encoders and decoders share these checks.
//
// Errors: kInvalidArgument.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"
#include "codec/codec.h"
#include "codec/predict/format.h"
#include "codec/predict/tables.h"

namespace longhaul::codec::predict {

// Checks that tables of the shape `tables` fit the parameters and a tensor of the shape `shape`.
Status CheckShapeOf(const TablesShape& tables, const Params& params, const Shape& shape);
// Checks a context for encoding or, if `decodes`, for decoding, where the token ids may be missing.
// `tables` is the shape of the context's tables, null if the context has none.
Status CheckContext(const Context& context, const TablesShape* tables, const Params& params,
                    const Shape& shape, bool decodes);
// Returns the front that a blob must have. If `tables` is null, the other arguments are not used.
Front ExpectedFront(const TablesShape* tables, bool learns, uint64_t check);
// Checks that `front`, which ReadFront returned, is equal to `expected`.
Status CheckFront(const Front& front, const Front& expected);
// Checks that all ids are below the vocabulary.
Status CheckIds(std::span<const uint32_t> ids, uint32_t vocabulary);

// Returns the dtype of the tensor that the other codec encodes. `dtype`: the dtype of the tensor
// that predict encodes.
inline Dtype DtypeWithin(Kind kind, Dtype dtype) {
  return kind == Kind::kPlain ? dtype : Dtype::kF32;
}
// Returns the context for the other codec: the same, but without tables and token ids.
Context ContextWithin(const Context& context);

}  // namespace longhaul::codec::predict
