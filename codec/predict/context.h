// What a call of predict is given of tokens, and whether a blob agrees. Encoders and decoders on
// CPUs and GPUs share it.
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

// `tables`: null without.
Status CheckShapeOf(const TablesShape& tables, const Params& params, const Shape& shape);
// A blob is to be made, or (`decodes`) was.
Status CheckContext(const Context& context, const TablesShape* tables, const Params& params,
                    const Shape& shape, bool decodes);
// What a blob's front is. Without tables, those behind `tables` mean nothing.
Front ExpectedFront(const TablesShape* tables, bool learns, uint64_t check);
// `front` has passed ReadFront.
Status CheckFront(const Front& front, const Front& expected);
Status CheckIds(std::span<const uint32_t> ids, uint32_t vocabulary);

// The dtype of the tensor that the other codec is given.
inline Dtype DtypeWithin(Kind kind, Dtype dtype) {
  return kind == Kind::kPlain ? dtype : Dtype::kF32;
}
// The context of the other codec.
Context ContextWithin(const Context& context);

}  // namespace longhaul::codec::predict
