// Runs the functions of codec/taco/flat.h on a GPU, with the same bytes. Every pointer, also inside
// TacoReduceArgs, is to memory of the stream's device. Each call queues one kernel, or no kernel if
// there are no elements.
//
// Calls only queue work: they allocate nothing, never wait, and may be captured in a CUDA graph.
// The structs of the arguments may be destroyed when a call returns. The memory that they point to
// must stay valid until the work is done.
//
// Threads: pure functions.
// Errors: kInvalidArgument as in flat.h; kInternal if the CUDA runtime refuses. After an error
// nothing is queued.
#pragma once

#include <cstdint>

#include "base/cuda/stream.h"
#include "codec/cuda/cuda_codec.h"
#include "codec/taco/flat.h"

namespace longhaul::codec::cuda {

// As TacoEncodeFlat of flat.h, but adds the number of blocks with a NaN or an infinity to
// *nonfinite_dev, which the caller must have set. Null: these blocks are not counted.
Status TacoEncodeFlat(const void* in_dev, Dtype dtype, uint64_t elements,
                      const taco::Params& params, DeviceSpan payload,
                      const longhaul::cuda::Stream& stream, uint64_t* nonfinite_dev = nullptr);

// As TacoDecodeFlat of flat.h.
Status TacoDecodeFlat(DeviceSpan payload, const taco::Params& params, void* out_dev, Dtype dtype,
                      uint64_t elements, const longhaul::cuda::Stream& stream);

// As TacoReduce of flat.h. The array args.parts itself is in host memory; its pointers are to
// device memory.
Status TacoReduce(const TacoReduceArgs& args, const longhaul::cuda::Stream& stream);

}  // namespace longhaul::codec::cuda
