// The codec predict (format.h).
#pragma once

#include <memory>

#include "codec/codec.h"
#include "codec/family.h"
#include "codec/predict/format.h"

namespace longhaul::codec::predict {

// Makes a codec. `params` must be in range. `other` encodes the differences between the values and
// their predictions; it must not be null, and must have no state.
std::unique_ptr<const Codec> Create(const Params& params, std::shared_ptr<const Codec> other);
// Returns the codec that encodes the differences for `codec`, which must be of this family.
const std::shared_ptr<const Codec>& OtherOf(const Codec& codec);

// Returns the entry for registry.cc.
Family Row();
// Makes the GPU part of `codec`, which must be of this family. kInvalidArgument: the codec that
// encodes the differences has no GPU part.
StatusOr<std::unique_ptr<const cuda::DeviceCodec>> MakeDevice(const Codec& codec);

}  // namespace longhaul::codec::predict
