// none, bf16, fp16: the elements themselves, in one 2- or 4-byte format, nothing else.
//
//   payload section  bytes
//   elements         samples x tokens x channels x 4 (none: fp32) or x 2 (bf16, fp16)
//
// Parameters in the header: none (zeros). Narrowing rounds to nearest even. Values too large for
// the format become infinities, as in IEEE 754. A NaN stays a NaN.
#pragma once

#include <cstdint>

#include "codec/blob.h"

namespace longhaul::codec::plain {

inline constexpr CodecId kNone{1}, kBf16{2}, kFp16{3};

// Returns the dtype on the wire: kF32 for none, whatever the tensor's dtype.
Dtype WireDtype(CodecId id);

// Bytes of header and payload. The shape has passed CheckShape.
uint64_t EncodedBytes(const Shape& shape, CodecId id);

}  // namespace longhaul::codec::plain
