// The codec predict (format.h).
#pragma once

#include <memory>

#include "codec/codec.h"
#include "codec/family.h"
#include "codec/predict/format.h"

namespace longhaul::codec::predict {

// `params` are in range. `other`, which codes the differences, remembers nothing.
std::unique_ptr<const Codec> Create(const Params& params, std::shared_ptr<const Codec> other);
// The codec that codes the differences of `codec`, one of this family.
const std::shared_ptr<const Codec>& OtherOf(const Codec& codec);

Family Row();
// Its part for a GPU (cuda/device.cc).
StatusOr<std::unique_ptr<const cuda::DeviceCodec>> MakeDevice(const Codec& codec);

}  // namespace longhaul::codec::predict
