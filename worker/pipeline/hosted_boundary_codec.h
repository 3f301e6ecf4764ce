// A BoundaryCodec for tensors in GPU memory whose codecs run on the host, because one of them does
// not run on GPUs (codec/family.h): tensors are copied to the host, encoded, and back. Slow, for
// research. Blobs are in pageable memory.
//
// Copies run on a CUDA stream of this object; Encode and Decode wait for them, as in
// cuda_boundary_codec.h.
#pragma once

#include <memory>

#include "base/cuda/device.h"
#include "base/status.h"
#include "worker/pipeline/boundary_codec.h"

namespace longhaul::worker {

// Returns whether a codec of `options` does not run on GPUs.
bool NeedsHost(const BoundaryCodecOptions& options);

// Makes the codec for tensors on `device`. kResourceExhausted: no memory. Other errors are those of
// the CUDA runtime. Release a tensor that Decode returned only when no kernel reads it any more.
StatusOr<std::unique_ptr<BoundaryCodec>> CreateHostedBoundaryCodec(
    const cuda::Device& device, const BoundaryCodecOptions& options);

}  // namespace longhaul::worker
