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
  LH_ASSIGN_OR_RETURN(BlobHeader header, BeginEncode(*this, in, workspace, out, result));
  header.payload_bytes = MaxEncodedBytes(in.shape) - kBlobHeaderBytes;
  if (!Empty(in.shape)) {
    header.nonfinite_tiles =
        EncodePayload(in, context, workspace.data(), out.data() + kBlobHeaderBytes);
  }
  FinishEncode(header, out, result);
  return absl::OkStatus();
}

Status FixedSizeCodec::Decode(std::span<const std::byte> blob, const Context& context,
                              std::span<std::byte> workspace, const MutableTensorView& out) const {
  LH_RETURN_IF_ERROR(BeginDecode(*this, blob, workspace, out).status());
  if (blob.size() != MaxEncodedBytes(out.shape)) {
    return InvalidArgument("a blob of {} with this shape has {} bytes; {} came", name_,
                           MaxEncodedBytes(out.shape), blob.size());
  }
  if (Empty(out.shape)) return absl::OkStatus();
  return DecodePayload(blob.data() + kBlobHeaderBytes, context, out);
}

}  // namespace longhaul::codec
