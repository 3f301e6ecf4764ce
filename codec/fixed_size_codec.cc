#include "codec/fixed_size_codec.h"

#include <cstdint>
#include <limits>

#include "codec/arguments.h"

namespace longhaul::codec {

size_t FixedSizeCodec::MaxEncodedBytes(const Shape& shape) const {
  if (!CheckShape(shape).ok()) return std::numeric_limits<size_t>::max();
  return kBlobHeaderBytes + (Empty(shape) ? 0 : PayloadBytes(shape));
}

size_t FixedSizeCodec::WorkspaceBytes(const Shape& shape) const {
  if (Empty(shape) || !CheckShape(shape).ok()) return 0;
  return AlignWorkspace(ScratchBytes(shape));
}

Status FixedSizeCodec::Encode(const TensorView& in, const Context& context,
                              std::span<std::byte> workspace, std::span<std::byte> out,
                              EncodeResult* result) const {
  if (result == nullptr) return absl::InvalidArgumentError("the result is a null pointer");
  LH_RETURN_IF_ERROR(CheckTensor(in.data, in.dtype, in.shape));
  LH_RETURN_IF_ERROR(CheckWorkspace(workspace, WorkspaceBytes(in.shape)));
  const size_t bytes = MaxEncodedBytes(in.shape);
  if (out.data() == nullptr || out.size() < bytes) {
    return InvalidArgument("the output must have {} bytes; it has {}", bytes, out.size());
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
  LH_RETURN_IF_ERROR(CheckBlob(header, id_, parameters_, name_, out.shape));
  if (blob.size() != MaxEncodedBytes(header.shape)) {
    return InvalidArgument("a blob of {} with this shape has {} bytes; {} came", name_,
                           MaxEncodedBytes(header.shape), blob.size());
  }
  if (Empty(out.shape)) return absl::OkStatus();
  return DecodePayload(blob.data() + kBlobHeaderBytes, context, out);
}

}  // namespace longhaul::codec
