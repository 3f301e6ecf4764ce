// A BoundaryCodec for tensors in GPU memory. Blobs are in pinned host memory. Only a codec made by
// Sharing may use other memory, for blobs that are larger than those of the object that it shares.
//
// Kernels and copies run on a CUDA stream of this object, concurrently with the stage's
// computation. Encode and Decode wait for their work by a CUDA event: the calling thread sleeps,
// and the device is never synchronised. Device and pinned memory come from pools, which grow to the
// largest amount in flight, so later steps allocate nothing.
#pragma once

#include <memory>
#include <optional>

#include "base/cuda/device.h"
#include "base/status.h"
#include "worker/pipeline/boundary_codec.h"

namespace longhaul::worker {

// kInvalidArgument: the codec has no kernels. kResourceExhausted: no memory. Other errors are those
// of the CUDA runtime. The memory of a tensor from Decode returns to the pool when its owner
// releases it. At that time no kernel may still read the tensor.
StatusOr<std::unique_ptr<BoundaryCodec>> CreateCudaBoundaryCodec(
    const cuda::Device& device, const BoundaryCodecOptions& options);

// Makes the codec for tensors on `gpu`; nullopt: in host memory.
StatusOr<std::unique_ptr<BoundaryCodec>> CreateBoundaryCodec(const std::optional<cuda::Device>& gpu,
                                                             const BoundaryCodecOptions& options);

}  // namespace longhaul::worker
