// A codec on the device that holds the tensor: the CPU, or a GPU on PyTorch's current stream.
//
// Threads: any. Errors: thrown, as in tensors.h. Only ReadHeader, and the check in Decode for
// foreign blobs, wait for a GPU.
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

// Encodes `x`, contiguous, to the start of `buffer`: uint8, MaxEncodedBytes of the shape, on the
// device of `x`.
void EncodeTo(const at::Tensor& x, const codec::Shape& shape, const codec::cuda::CudaCodec& codec,
              const codec::Context& context, const at::Tensor& buffer);

// Reads the first bytes of a blob, which may be invalid. Waits for the stream.
HeaderBytes ReadHeader(const at::Tensor& blob);
// Returns the header that EncodeTo writes, if all blobs of a shape have one length. The count of
// non-finite tiles, which decoders do not need, is 0.
HeaderBytes HeaderOfFixedSize(const at::Tensor& x, const codec::Shape& shape,
                              const codec::cuda::CudaCodec& codec);

enum class Origin { kOurs, kForeign };

// Decodes `blob`, contiguous and exactly one blob with this header, to `out`, contiguous, on the
// same device. kOurs: EncodeTo has just made it.
void DecodeTo(const at::Tensor& blob, const HeaderBytes& header, const codec::Shape& shape,
              const codec::cuda::CudaCodec& codec, Origin origin, const at::Tensor& out);

// Returns PyTorch's current stream, found without LibTorch's CUDA part, which this library does not
// link.
cuda::Stream CurrentStream(const c10::Device& device);
// Makes uint8 of one dimension, on the device of `like`.
at::Tensor NewBytes(size_t count, const at::Tensor& like);
codec::cuda::DeviceSpan DeviceSpanOf(const at::Tensor& bytes);
std::span<std::byte> HostSpanOf(const at::Tensor& bytes);

}  // namespace longhaul::ops
