// The codecs none, bf16 and fp16 (format.h).
#pragma once

#include <memory>

#include "codec/codec.h"
#include "codec/family.h"
#include "codec/plain/format.h"

namespace longhaul::codec::plain {

// Makes a codec. `id` must be kNone, kBf16 or kFp16.
std::unique_ptr<const Codec> Create(CodecId id);

// The entry of codec `id` in registry.cc.
Family Row(CodecId id);
// Makes the part of the codec that runs on a GPU.
StatusOr<std::unique_ptr<const cuda::DeviceCodec>> MakeDevice(const Codec& codec);

}  // namespace longhaul::codec::plain
