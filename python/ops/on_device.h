// Runs a codec on the device that holds the tensor: on the CPU, or on a GPU in PyTorch's current
// stream.
//
// Threads: any. Errors: thrown, as in tensors.h. On a GPU, functions queue work and return; only
// ReadHeader, and DecodeTo with kForeign, wait for the GPU. A blob is an encoded tensor.
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

// Encodes the contiguous tensor `x`, of shape `shape`, to the start of `buffer`. `buffer` must be
// uint8, have at least codec.MaxEncodedBytes(shape) bytes and be on the device of `x`.
void EncodeTo(const at::Tensor& x, const codec::Shape& shape, const codec::cuda::CudaCodec& codec,
              const codec::Context& context, const at::Tensor& buffer);

// Copies the header of a blob to the host, and waits for the copy. Does not check the header. If
// the blob is shorter than a header, the missing bytes are 0.
HeaderBytes ReadHeader(const at::Tensor& blob);
// Returns the header that EncodeTo writes for `x`, without a GPU. Only for a codec whose blobs all
// have the same length for a shape. The count of non-finite tiles, which decoders do not need, is
// 0.
HeaderBytes HeaderOfFixedSize(const at::Tensor& x, const codec::Shape& shape,
                              const codec::cuda::CudaCodec& codec);

enum class Origin { kOurs, kForeign };

// Decodes `blob` to `out`. Both must be contiguous and on the same device. `blob` must be exactly
// one blob, and `header` the blob's header; the CPU does not use `header`. kOurs: EncodeTo has just
// made the blob, so faults that a GPU finds are ignored. kForeign: a bad blob throws.
void DecodeTo(const at::Tensor& blob, const HeaderBytes& header, const codec::Shape& shape,
              const codec::cuda::CudaCodec& codec, Origin origin, const at::Tensor& out);

// Returns PyTorch's current stream of `device`, a GPU. PyTorch keeps the ownership. Does not use
// LibTorch's CUDA part, because this library does not link it.
cuda::Stream CurrentStream(const c10::Device& device);
// Makes an uninitialized uint8 tensor of `count` bytes on the device of `like`.
at::Tensor NewBytes(size_t count, const at::Tensor& like);
// Return the memory of a contiguous uint8 tensor on a GPU, or on the CPU. Valid while the tensor's
// memory lives.
codec::cuda::DeviceSpan DeviceSpanOf(const at::Tensor& bytes);
std::span<std::byte> HostSpanOf(const at::Tensor& bytes);

}  // namespace longhaul::ops
