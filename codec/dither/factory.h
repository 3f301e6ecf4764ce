// The codec dither (format.h).
#pragma once

#include <memory>

#include "codec/codec.h"
#include "codec/dither/format.h"
#include "codec/family.h"

namespace longhaul::codec::dither {

// Makes a codec. Possible(params) (format.h) must be true.
std::unique_ptr<const Codec> Create(const Params& params);

// Returns the entry for registry.cc.
Family Row();
// Makes the GPU part of `codec`, which must be of this family.
StatusOr<std::unique_ptr<const cuda::DeviceCodec>> MakeDevice(const Codec& codec);

}  // namespace longhaul::codec::dither
