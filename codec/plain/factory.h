// The codecs none, bf16 and fp16 (format.h).
#ifndef LONGHAUL_CODEC_PLAIN_FACTORY_H_
#define LONGHAUL_CODEC_PLAIN_FACTORY_H_

#include <memory>

#include "codec/blob.h"
#include "codec/codec.h"

namespace longhaul::codec::plain {

// `id` is kNone, kBf16 or kFp16.
std::unique_ptr<const Codec> Create(CodecId id);

}  // namespace longhaul::codec::plain

#endif  // LONGHAUL_CODEC_PLAIN_FACTORY_H_
