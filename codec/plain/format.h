// none, bf16, fp16: the payload is the tensor's elements as fp32, bf16 or fp16, and nothing else.
//
//   payload section  bytes
//   elements         samples x tokens x channels x 4 (none: fp32) or x 2 (bf16, fp16)
//
// There are no parameters: their bytes in the header are zeros. Elements are rounded to nearest
// even. Values too large for the format become infinities, as in IEEE 754. A NaN stays a NaN.
#pragma once

#include <cstdint>

#include "codec/blob.h"

namespace longhaul::codec::plain {

inline constexpr CodecId kNone{1}, kBf16{2}, kFp16{3};

// Returns the dtype of the elements in the payload: kF32 for none, whatever dtype the tensor has.
Dtype WireDtype(CodecId id);

// Returns the size of header and payload in bytes. The shape must have passed CheckShape.
uint64_t EncodedBytes(const Shape& shape, CodecId id);

}  // namespace longhaul::codec::plain
