// Decodes plain elements on a GPU, for the codecs none, bf16, fp16 and zip.
#pragma once

#include "base/status.h"
#include "codec/codec.h"
#include "codec/cuda/device_codec.h"

namespace longhaul::codec::plain {

// Queues on call.queue the decoding of a payload that consists only of the tensor's elements in the
// dtype `wire`.
Status DecodeElements(const cuda::DecodeCall& call, Dtype wire);

}  // namespace longhaul::codec::plain
