// Runs a codec on the device that holds the tensor: on the CPU, or on a GPU in PyTorch's current
// stream.
//
// Threads: any. Errors: thrown, as in tensors.h. Only ReadHeader, and DecodeTo for foreign blobs,
// wait for a GPU.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <array>
#include <cstddef>
#include <span>

#include "base/cuda/stream.h"
#include "codec/blob.h"
#include "codec/codec.h"
#include "codec/cuda/cuda_codec.h"

namespace longhaul::ops {

using HeaderBytes = std::array<std::byte, codec::kBlobHeaderBytes>;

// Encodes the contiguous tensor `x` to the start of `buffer`, which is uint8, has
// MaxEncodedBytes(shape) bytes and is on the device of `x`.
void EncodeTo(const at::Tensor& x, const codec::Shape& shape, const codec::cuda::CudaCodec& codec,
              const codec::Context& context, const at::Tensor& buffer);

// Copies the header of a blob to the host, and waits for the copy. Checks nothing; bytes that the
// blob lacks are 0.
HeaderBytes ReadHeader(const at::Tensor& blob);
// Returns the header that EncodeTo writes for `x`, for a codec with the same length for all blobs
// of a shape. Only the count of non-finite tiles, which decoders do not need, is always 0.
HeaderBytes HeaderOfFixedSize(const at::Tensor& x, const codec::Shape& shape,
                              const codec::cuda::CudaCodec& codec);

enum class Origin { kOurs, kForeign };

// Decodes `blob` to `out`. Both must be contiguous and on the same device. `blob` must be exactly
// one blob, and `header` the header in it. kOurs: EncodeTo has just made the blob, so on a GPU its
// contents are not checked. kForeign: they are checked, and a bad blob throws.
void DecodeTo(const at::Tensor& blob, const HeaderBytes& header, const codec::Shape& shape,
              const codec::cuda::CudaCodec& codec, Origin origin, const at::Tensor& out);

// Returns PyTorch's current stream of `device`. Does not use LibTorch's CUDA part, because this
// library does not link it.
cuda::Stream CurrentStream(const c10::Device& device);
// Makes an uninitialised uint8 tensor of `count` bytes on the device of `like`.
at::Tensor NewBytes(size_t count, const at::Tensor& like);
codec::cuda::DeviceSpan DeviceSpanOf(const at::Tensor& bytes);
std::span<std::byte> HostSpanOf(const at::Tensor& bytes);

}  // namespace longhaul::ops
