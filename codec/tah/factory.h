// The codec tah (format.h).
#pragma once

#include <memory>

#include "codec/codec.h"
#include "codec/family.h"
#include "codec/tah/format.h"

namespace longhaul::codec::tah {

// Makes a codec. `params` must be in range.
std::unique_ptr<const Codec> Create(const Params& params);

// Returns the entry for registry.cc.
Family Row();
// Makes the GPU part of `codec`, which must be of this family.
StatusOr<std::unique_ptr<const cuda::DeviceCodec>> MakeDevice(const Codec& codec);

}  // namespace longhaul::codec::tah
