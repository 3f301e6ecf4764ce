// Decodes plain elements on a GPU.
#pragma once

#include "base/status.h"
#include "codec/codec.h"
#include "codec/cuda/device_codec.h"

namespace longhaul::codec::plain {

// Decodes a payload that consists of the elements in the dtype `wire`.
Status DecodeElements(const cuda::DecodeCall& call, Dtype wire);

}  // namespace longhaul::codec::plain
