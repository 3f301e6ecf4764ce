// The codec zip (format.h).
#pragma once

#include <memory>

#include "codec/codec.h"
#include "codec/family.h"

namespace longhaul::codec::zip {

std::unique_ptr<const Codec> Create();

Family Row();
// Makes the codec's part for a GPU (cuda/device.cc).
StatusOr<std::unique_ptr<const cuda::DeviceCodec>> MakeDevice(const Codec& codec);

}  // namespace longhaul::codec::zip
