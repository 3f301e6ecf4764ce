// A BoundaryCodec for tensors in GPU memory. Blobs are in pinned host memory, with one exception: a
// codec made by BoundaryCodec::Sharing may have larger blobs than the object whose memory it
// shares. Such blobs are in pageable memory.
//
// Kernels and copies run on a CUDA stream of this object, concurrently with the stage's
// computation. Encode and Decode wait for their work by a CUDA event: the calling thread sleeps,
// and the device is never synchronised. They return kDeadlineExceeded if the GPU needs more than 60
// seconds. Device and pinned memory come from pools, which grow to the largest amount in flight, so
// later steps allocate nothing.
#pragma once

#include <memory>
#include <optional>

#include "base/cuda/device.h"
#include "base/status.h"
#include "worker/pipeline/boundary_codec.h"

namespace longhaul::worker {

// Makes the codec for tensors on `device`. kInvalidArgument: a codec of `options` does not run on a
// GPU. kResourceExhausted: no memory. Other errors are those of the CUDA runtime. Release a tensor
// that Decode returned only when no kernel reads it any more: its memory goes back to the pool.
StatusOr<std::unique_ptr<BoundaryCodec>> CreateCudaBoundaryCodec(
    const cuda::Device& device, const BoundaryCodecOptions& options);

// Makes the codec for tensors on `gpu`, or in host memory if `gpu` is nullopt. Codecs that do not
// run on a GPU run on the host (hosted_boundary_codec.h). Errors: those of CreateCudaBoundaryCodec;
// in host memory it cannot fail.
StatusOr<std::unique_ptr<BoundaryCodec>> CreateBoundaryCodec(const std::optional<cuda::Device>& gpu,
                                                             const BoundaryCodecOptions& options);

}  // namespace longhaul::worker
