// A BoundaryCodec whose tensors are in a GPU's memory. Blobs are pinned host memory; those of a
// codec that shares another one's memory are not, where they are larger than that one's.
//
// Encoding: kernels and the copy to the host on a stream of its own, beside whatever the GPU
// computes; decoding: copy to the device and kernels on the same. Each call waits for its work by
// an event: the thread sleeps, the device is never synchronised. Memory of the device and pinned
// memory come from pools that grow to what is in flight at most, so later steps allocate nothing.
#ifndef LONGHAUL_WORKER_PIPELINE_CUDA_BOUNDARY_CODEC_H_
#define LONGHAUL_WORKER_PIPELINE_CUDA_BOUNDARY_CODEC_H_

#include <memory>
#include <optional>

#include "base/cuda/device.h"
#include "base/status.h"
#include "worker/pipeline/boundary_codec.h"

namespace longhaul::worker {

// kInvalidArgument for a codec without kernels; kResourceExhausted; what the CUDA runtime refuses.
// Tensors that Decode gives return to the pool when their owners let them go: by then nothing under
// way may read them.
StatusOr<std::unique_ptr<BoundaryCodec>> CreateCudaBoundaryCodec(
    const cuda::Device& device, const BoundaryCodecOptions& options);

// Where a worker's stages compute: on this GPU, or without one on the host.
StatusOr<std::unique_ptr<BoundaryCodec>> CreateBoundaryCodec(const std::optional<cuda::Device>& gpu,
                                                             const BoundaryCodecOptions& options);

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_PIPELINE_CUDA_BOUNDARY_CODEC_H_
