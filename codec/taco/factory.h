// The codec taco (format.h).
#pragma once

#include <memory>

#include "codec/codec.h"
#include "codec/family.h"
#include "codec/taco/format.h"

namespace longhaul::codec::taco {

// `params` must be in range.
std::unique_ptr<const Codec> Create(const Params& params);

Family Row();
// Makes the codec's part for a GPU (cuda/device.cc).
StatusOr<std::unique_ptr<const cuda::DeviceCodec>> MakeDevice(const Codec& codec);

}  // namespace longhaul::codec::taco
