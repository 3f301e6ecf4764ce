#include "codec/plain/format.h"

namespace longhaul::codec::plain {

Dtype WireDtype(CodecId id) {
  if (id == kBf16) return Dtype::kBf16;
  if (id == kFp16) return Dtype::kF16;
  return Dtype::kF32;
}

uint64_t EncodedBytes(const Shape& shape, CodecId id) {
  return kBlobHeaderBytes + shape.elements() * BytesPerElement(WireDtype(id));
}

}  // namespace longhaul::codec::plain
