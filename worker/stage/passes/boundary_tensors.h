// Converts LibTorch's tensors to the stage's BoundaryTensor, which the pipeline sends.
//
// Internal to worker/stage (it shows LibTorch). Threads: any. Errors: LibTorch's exceptions.
#pragma once

#include <ATen/core/Tensor.h>

#include "codec/codec.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

at::ScalarType ToTorch(codec::Dtype dtype);
// Returns `tensor`, (samples, tokens, channels), as fp32 on its device. Waits until `tensor` is
// computed.
BoundaryTensor ToBoundary(const at::Tensor& tensor);

}  // namespace longhaul::worker
