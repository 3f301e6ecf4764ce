// The codec fixed (format.h).
#pragma once

#include <memory>

#include "codec/codec.h"
#include "codec/family.h"
#include "codec/fixed/format.h"

namespace longhaul::codec::fixed {

// Makes a codec. `params` must be in range.
std::unique_ptr<const Codec> Create(const Params& params);

// The entry in registry.cc.
Family Row();
// Makes the part of the codec that runs on a GPU.
StatusOr<std::unique_ptr<const cuda::DeviceCodec>> MakeDevice(const Codec& codec);

}  // namespace longhaul::codec::fixed
