// The codec aqsgd (format.h).
#pragma once

#include <memory>

#include "codec/aqsgd/format.h"
#include "codec/codec.h"
#include "codec/family.h"

namespace longhaul::codec::aqsgd {

// `params` must be in range.
std::unique_ptr<const Codec> Create(const Params& params);

Family Row();
// Makes the codec's part for a GPU (cuda/device.cc).
StatusOr<std::unique_ptr<const cuda::DeviceCodec>> MakeDevice(const Codec& codec);

}  // namespace longhaul::codec::aqsgd
