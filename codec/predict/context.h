// Checks the tokens that a call of predict is given, and whether a blob agrees with them. CPU and
// GPU encoders and decoders share the checks.
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

// `tables`: null if the context has none.
Status CheckShapeOf(const TablesShape& tables, const Params& params, const Shape& shape);
// Checks a context for encoding or, with `decodes`, for decoding.
Status CheckContext(const Context& context, const TablesShape* tables, const Params& params,
                    const Shape& shape, bool decodes);
// Returns the front that a blob must have. If `tables` is null, the arguments after it are not
// used.
Front ExpectedFront(const TablesShape* tables, bool learns, uint64_t check);
// `front` has passed ReadFront.
Status CheckFront(const Front& front, const Front& expected);
Status CheckIds(std::span<const uint32_t> ids, uint32_t vocabulary);

// Returns the dtype of the tensor that the other codec encodes.
inline Dtype DtypeWithin(Kind kind, Dtype dtype) {
  return kind == Kind::kPlain ? dtype : Dtype::kF32;
}
// Returns the context of the other codec.
Context ContextWithin(const Context& context);

}  // namespace longhaul::codec::predict
