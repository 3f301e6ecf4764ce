// codec/taco/flat.h's three functions on a GPU, with the same bytes: every pointer is to memory of
// the stream's device, in the arguments too. One kernel each.
//
// Calls only queue work: they allocate nothing, never wait, and may be captured in a CUDA graph.
// The arguments' structs may be destroyed when a call returns; the memory must stay until the work
// is done.
//
// Threads: pure functions.
// Errors, before anything is queued: kInvalidArgument as flat.h's, kInternal for a refusal of the
// CUDA runtime.
#pragma once

#include <cstdint>

#include "base/cuda/stream.h"
#include "codec/cuda/cuda_codec.h"
#include "codec/taco/flat.h"

namespace longhaul::codec::cuda {

// Adds the number of blocks with a NaN or an infinity to *nonfinite_dev, unless it is null.
Status TacoEncodeFlat(const void* in_dev, Dtype dtype, uint64_t elements,
                      const taco::Params& params, DeviceSpan payload,
                      const longhaul::cuda::Stream& stream, uint64_t* nonfinite_dev = nullptr);

Status TacoDecodeFlat(DeviceSpan payload, const taco::Params& params, void* out_dev, Dtype dtype,
                      uint64_t elements, const longhaul::cuda::Stream& stream);

// args.parts itself is in host memory; its pointers are to device memory.
Status TacoReduce(const TacoReduceArgs& args, const longhaul::cuda::Stream& stream);

}  // namespace longhaul::codec::cuda
