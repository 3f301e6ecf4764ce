// The codecs none, bf16 and fp16 (format.h).
#pragma once

#include <memory>

#include "codec/codec.h"
#include "codec/family.h"
#include "codec/plain/format.h"

namespace longhaul::codec::plain {

// Makes a codec. `id` must be kNone, kBf16 or kFp16.
std::unique_ptr<const Codec> Create(CodecId id);

// Returns the entry of codec `id` for registry.cc.
Family Row(CodecId id);
// Makes the GPU part of `codec`, which must be none, bf16 or fp16.
StatusOr<std::unique_ptr<const cuda::DeviceCodec>> MakeDevice(const Codec& codec);

}  // namespace longhaul::codec::plain
