// Converts PyTorch's types to those of the codecs (codec/codec.h), and the codecs' errors to
// Python's exceptions.
//
// Threads: any. Errors are thrown, because PyTorch's dispatcher is the caller: ValueError for bad
// arguments and bytes, NotImplementedError for blobs of another version, TypeError for dtypes that
// no codec accepts, else RuntimeError.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "codec/codec.h"
#include "codec/cuda/cuda_codec.h"

namespace longhaul::ops {

// Throws unless `status` is OK.
void ThrowIfError(const Status& status);
template <class T>
T ValueOrThrow(StatusOr<T> made) {
  ThrowIfError(made.status());
  return *std::move(made);
}

codec::Dtype DtypeOf(at::ScalarType type);
at::ScalarType ScalarTypeOf(codec::Dtype dtype);
// Converts 1 to 3 dimensions. Missing leading dimensions are 1, as in the program longhaul-codec.
codec::Shape ShapeOf(at::IntArrayRef sizes);
// Returns a context with this seed and direction, "forward" or "backward". All other fields have
// their default values.
codec::Context ContextOf(int64_t seed, std::string_view direction);

// Returns the codec of the codec string `text` ("fixed:bits=6"), for the CPU and for GPUs; never
// null. Keeps the codec for later calls.
std::shared_ptr<const codec::cuda::CudaCodec> FindCodec(std::string_view text);

}  // namespace longhaul::ops
