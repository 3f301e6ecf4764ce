// The codec predict (format.h).
#pragma once

#include <memory>

#include "codec/codec.h"
#include "codec/family.h"
#include "codec/predict/format.h"

namespace longhaul::codec::predict {

// `params` must be in range. `other`, which codes the differences, must have no state.
std::unique_ptr<const Codec> Create(const Params& params, std::shared_ptr<const Codec> other);
// Returns the codec that codes the differences of `codec`, which must be of this family.
const std::shared_ptr<const Codec>& OtherOf(const Codec& codec);

Family Row();
// Makes the codec's part for a GPU (cuda/device.cc).
StatusOr<std::unique_ptr<const cuda::DeviceCodec>> MakeDevice(const Codec& codec);

}  // namespace longhaul::codec::predict
