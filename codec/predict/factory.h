// The codec predict (format.h).
#pragma once

#include <memory>

#include "codec/codec.h"
#include "codec/family.h"
#include "codec/predict/format.h"

namespace longhaul::codec::predict {

// Makes a codec. `params` must be in range. `other` codes the differences and must have no state.
std::unique_ptr<const Codec> Create(const Params& params, std::shared_ptr<const Codec> other);
// Returns the codec that codes the differences for `codec`, which must be of this family.
const std::shared_ptr<const Codec>& OtherOf(const Codec& codec);

// The entry in registry.cc.
Family Row();
// Makes the part of the codec that runs on a GPU.
StatusOr<std::unique_ptr<const cuda::DeviceCodec>> MakeDevice(const Codec& codec);

}  // namespace longhaul::codec::predict
