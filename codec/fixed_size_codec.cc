#include "codec/fixed_size_codec.h"

#include <fmt/format.h>

#include <cstdint>
#include <limits>

namespace longhaul::codec {
namespace {

constexpr size_t kWorkspaceAlignment = 64;

bool Aligned(const void* pointer, size_t alignment) {
  return reinterpret_cast<uintptr_t>(pointer) % alignment == 0;
}

bool Empty(const Shape& shape) {
  return shape.samples == 0 || shape.tokens == 0 || shape.channels == 0;
}

Status CheckTensor(const void* data, Dtype dtype, const Shape& shape) {
  if (dtype != Dtype::kF32 && dtype != Dtype::kF16 && dtype != Dtype::kBf16) {
    return absl::InvalidArgumentError(
        fmt::format("the tensor's dtype has number {}; 1 to 3 are known", static_cast<int>(dtype)));
  }
  LH_RETURN_IF_ERROR(CheckShape(shape));
  if (Empty(shape)) return absl::OkStatus();
  if (data == nullptr) return absl::InvalidArgumentError("the tensor's data is a null pointer");
  if (!Aligned(data, BytesPerElement(dtype))) {
    return absl::InvalidArgumentError(
        fmt::format("the tensor's data must be aligned to {} bytes", BytesPerElement(dtype)));
  }
  return absl::OkStatus();
}

Status CheckWorkspace(std::span<std::byte> workspace, size_t needed) {
  if (needed == 0) return absl::OkStatus();
  if (workspace.size() < needed) {
    return absl::InvalidArgumentError(
        fmt::format("the workspace must have {} bytes; it has {}", needed, workspace.size()));
  }
  if (workspace.data() == nullptr || !Aligned(workspace.data(), kWorkspaceAlignment)) {
    return absl::InvalidArgumentError(
        fmt::format("the workspace must be aligned to {} bytes", kWorkspaceAlignment));
  }
  return absl::OkStatus();
}

}  // namespace

size_t FixedSizeCodec::MaxEncodedBytes(const Shape& shape) const {
  if (!CheckShape(shape).ok()) return std::numeric_limits<size_t>::max();
  return kBlobHeaderBytes + (Empty(shape) ? 0 : PayloadBytes(shape));
}

size_t FixedSizeCodec::WorkspaceBytes(const Shape& shape) const {
  if (Empty(shape) || !CheckShape(shape).ok()) return 0;
  return (ScratchBytes(shape) + kWorkspaceAlignment - 1) / kWorkspaceAlignment *
         kWorkspaceAlignment;
}

Status FixedSizeCodec::Encode(const TensorView& in, const Context& context,
                              std::span<std::byte> workspace, std::span<std::byte> out,
                              EncodeResult* result) const {
  if (result == nullptr) return absl::InvalidArgumentError("the result is a null pointer");
  LH_RETURN_IF_ERROR(CheckTensor(in.data, in.dtype, in.shape));
  LH_RETURN_IF_ERROR(CheckWorkspace(workspace, WorkspaceBytes(in.shape)));
  const size_t bytes = MaxEncodedBytes(in.shape);
  if (out.data() == nullptr || out.size() < bytes) {
    return absl::InvalidArgumentError(
        fmt::format("the output must have {} bytes; it has {}", bytes, out.size()));
  }
  BlobHeader header;
  header.codec = id_;
  header.source_dtype = in.dtype;
  header.shape = in.shape;
  header.payload_bytes = bytes - kBlobHeaderBytes;
  header.parameters = parameters_;
  if (!Empty(in.shape)) {
    header.nonfinite_tiles =
        EncodePayload(in, context, workspace.data(), out.data() + kBlobHeaderBytes);
  }
  WriteBlobHeader(header, out);
  result->bytes = bytes;
  result->nonfinite_tiles = header.nonfinite_tiles;
  return absl::OkStatus();
}

Status FixedSizeCodec::Decode(std::span<const std::byte> blob, const Context& context,
                              std::span<std::byte> workspace, const MutableTensorView& out) const {
  LH_RETURN_IF_ERROR(CheckTensor(out.data, out.dtype, out.shape));
  LH_RETURN_IF_ERROR(CheckWorkspace(workspace, WorkspaceBytes(out.shape)));
  LH_ASSIGN_OR_RETURN(const BlobHeader header, ParseBlobHeader(blob));
  if (header.codec != id_ || header.parameters != parameters_) {
    return absl::InvalidArgumentError(
        fmt::format("expected a blob of {}; one of codec {}{} came", name_, ToString(header.codec),
                    header.codec == id_ ? " with other parameters" : ""));
  }
  if (header.shape != out.shape) {
    return absl::InvalidArgumentError(
        fmt::format("expected a tensor of {} x {} x {}; the blob has {} x {} x {}",
                    out.shape.samples, out.shape.tokens, out.shape.channels, header.shape.samples,
                    header.shape.tokens, header.shape.channels));
  }
  if (blob.size() != MaxEncodedBytes(header.shape)) {
    return absl::InvalidArgumentError(
        fmt::format("a blob of {} with this shape has {} bytes; {} came", name_,
                    MaxEncodedBytes(header.shape), blob.size()));
  }
  if (Empty(out.shape)) return absl::OkStatus();
  return DecodePayload(blob.data() + kBlobHeaderBytes, context, out);
}

}  // namespace longhaul::codec
