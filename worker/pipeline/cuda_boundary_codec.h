// A BoundaryCodec for tensors in GPU memory. Blobs are pinned host memory, except blobs of a
// Sharing codec that are larger than the owner's.
//
// Encoding runs kernels and the copy to the host on a stream of its own, concurrently with the
// stage's computation; decoding runs the copy to the device and kernels on the same stream. Each
// call waits for an event: its thread sleeps, and the device is never synchronised. Device and
// pinned memory come from pools that grow to the peak in flight, so later steps allocate nothing.
#pragma once

#include <memory>
#include <optional>

#include "base/cuda/device.h"
#include "base/status.h"
#include "worker/pipeline/boundary_codec.h"

namespace longhaul::worker {

// kInvalidArgument: the codec has no kernels. kResourceExhausted. Else the CUDA runtime's error. A
// tensor from Decode returns to the pool when its owner releases it; then no kernel may still read
// it.
StatusOr<std::unique_ptr<BoundaryCodec>> CreateCudaBoundaryCodec(
    const cuda::Device& device, const BoundaryCodecOptions& options);

// Makes the codec for `gpu`, or for the host without one.
StatusOr<std::unique_ptr<BoundaryCodec>> CreateBoundaryCodec(const std::optional<cuda::Device>& gpu,
                                                             const BoundaryCodecOptions& options);

}  // namespace longhaul::worker
