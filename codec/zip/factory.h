// The codec zip (format.h).
#pragma once

#include <memory>

#include "codec/codec.h"
#include "codec/family.h"

namespace longhaul::codec::zip {

std::unique_ptr<const Codec> Create();

// Returns the entry for registry.cc.
Family Row();
// Makes the GPU part of `codec`, which must be of this family.
StatusOr<std::unique_ptr<const cuda::DeviceCodec>> MakeDevice(const Codec& codec);

}  // namespace longhaul::codec::zip
