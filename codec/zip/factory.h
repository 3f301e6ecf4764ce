// The codec zip (format.h).
#pragma once

#include <memory>

#include "codec/codec.h"
#include "codec/family.h"

namespace longhaul::codec::zip {

std::unique_ptr<const Codec> Create();

// The entry in registry.cc.
Family Row();
// Makes the part of the codec that runs on a GPU.
StatusOr<std::unique_ptr<const cuda::DeviceCodec>> MakeDevice(const Codec& codec);

}  // namespace longhaul::codec::zip
