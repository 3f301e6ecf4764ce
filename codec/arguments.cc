#include "codec/arguments.h"

#include <cstdint>

#include "codec/registry.h"

namespace longhaul::codec {
namespace {

bool Aligned(const void* pointer, size_t alignment) {
  return reinterpret_cast<uintptr_t>(pointer) % alignment == 0;
}

Status CheckWorkspace(std::span<std::byte> workspace, size_t needed) {
  if (needed == 0) return absl::OkStatus();
  if (workspace.size() < needed) {
    return InvalidArgument("the workspace must have {} bytes; it has {}", needed, workspace.size());
  }
  if (workspace.data() == nullptr || !Aligned(workspace.data(), kWorkspaceAlignment)) {
    return InvalidArgument("the workspace must be aligned to {} bytes", kWorkspaceAlignment);
  }
  return absl::OkStatus();
}

}  // namespace

bool Empty(const Shape& shape) {
  return shape.samples == 0 || shape.tokens == 0 || shape.channels == 0;
}

Status CheckTensor(const void* data, Dtype dtype, const Shape& shape) {
  if (dtype != Dtype::kF32 && dtype != Dtype::kF16 && dtype != Dtype::kBf16) {
    return InvalidArgument("the tensor's dtype has number {}; 1 to 3 are known",
                           static_cast<int>(dtype));
  }
  LH_RETURN_IF_ERROR(CheckShape(shape));
  if (Empty(shape)) return absl::OkStatus();
  if (data == nullptr) return absl::InvalidArgumentError("the tensor's data is a null pointer");
  if (!Aligned(data, BytesPerElement(dtype))) {
    return InvalidArgument("the tensor's data must be aligned to {} bytes", BytesPerElement(dtype));
  }
  return absl::OkStatus();
}

Status CheckBlob(const BlobHeader& header, CodecId codec, const CodecParameters& parameters,
                 std::string_view name, const Shape& shape) {
  if (header.codec != codec || header.parameters != parameters) {
    return InvalidArgument("expected a blob of {}; one of codec {}{} came", name,
                           ToString(header.codec),
                           header.codec == codec ? " with other parameters" : "");
  }
  if (header.shape != shape) {
    return InvalidArgument("expected a tensor of {} x {} x {}; the blob has {} x {} x {}",
                           shape.samples, shape.tokens, shape.channels, header.shape.samples,
                           header.shape.tokens, header.shape.channels);
  }
  return absl::OkStatus();
}

StatusOr<BlobHeader> BeginEncode(const Codec& codec, const TensorView& in,
                                 std::span<std::byte> workspace, std::span<const std::byte> out,
                                 const EncodeResult* result) {
  if (result == nullptr) return absl::InvalidArgumentError("the result is a null pointer");
  LH_RETURN_IF_ERROR(CheckTensor(in.data, in.dtype, in.shape));
  LH_RETURN_IF_ERROR(CheckWorkspace(workspace, codec.WorkspaceBytes(in.shape)));
  const size_t needed = codec.MaxEncodedBytes(in.shape);
  if (out.data() == nullptr || out.size() < needed) {
    return InvalidArgument("the output must have {} bytes; it has {}", needed, out.size());
  }
  const CodecKind kind = codec.kind();
  BlobHeader header;
  header.codec = kind.id;
  header.source_dtype = in.dtype;
  header.shape = in.shape;
  header.parameters = kind.parameters;
  return header;
}

void FinishEncode(const BlobHeader& header, std::span<std::byte> out, EncodeResult* result) {
  WriteBlobHeader(header, out);
  result->bytes = kBlobHeaderBytes + header.payload_bytes;
  result->nonfinite_tiles = header.nonfinite_tiles;
}

StatusOr<BlobHeader> BeginDecode(const Codec& codec, std::span<const std::byte> blob,
                                 std::span<std::byte> workspace, const MutableTensorView& out) {
  LH_RETURN_IF_ERROR(CheckTensor(out.data, out.dtype, out.shape));
  LH_RETURN_IF_ERROR(CheckWorkspace(workspace, codec.WorkspaceBytes(out.shape)));
  LH_ASSIGN_OR_RETURN(const BlobHeader header, ParseBlobHeader(blob));
  const CodecKind kind = codec.kind();
  LH_RETURN_IF_ERROR(CheckBlob(header, kind.id, kind.parameters, codec.name(), out.shape));
  return header;
}

Status CheckEmptyBlob(const BlobHeader& header) {
  if (header.payload_bytes == 0) return absl::OkStatus();
  return absl::InvalidArgumentError("a blob of an empty tensor has a payload");
}

}  // namespace longhaul::codec
