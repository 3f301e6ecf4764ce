#include "codec/tool/files.h"

#include "base/file.h"

namespace longhaul::codec {

StatusOr<NpyArray> ReadArray(const std::string& path, bool bf16) {
  LH_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  auto array = ParseNpy(file.bytes(), bf16);
  if (!array.ok()) return Annotate(array.status(), path);
  return array;
}

StatusOr<NpyArray> ReadInput(const std::string& path, std::optional<Dtype> dtype) {
  LH_ASSIGN_OR_RETURN(NpyArray array, ReadArray(path, dtype == Dtype::kBf16));
  if (dtype.has_value() && array.dtype != *dtype) {
    return InvalidArgument("{}: expected {} as --dtype says; it has {}", path, ToString(*dtype),
                           ToString(array.dtype));
  }
  return array;
}

StatusOr<Encoded> EncodeArray(const Codec& codec, const NpyArray& array, const Context& context) {
  Encoded encoded;
  encoded.blob = AlignedBuffer(codec.MaxEncodedBytes(array.shape));
  AlignedBuffer workspace(codec.WorkspaceBytes(array.shape));
  LH_RETURN_IF_ERROR(
      codec.Encode(array.view(), context, workspace.span(), encoded.blob.span(), &encoded.result));
  return encoded;
}

StatusOr<NpyArray> DecodeArray(const Codec& codec, std::span<const std::byte> blob,
                               const Shape& shape, Dtype dtype, const Context& context) {
  LH_ASSIGN_OR_RETURN(NpyArray array, MakeArray(dtype, shape));
  AlignedBuffer workspace(codec.WorkspaceBytes(shape));
  LH_RETURN_IF_ERROR(codec.Decode(blob, context, workspace.span(), array.mutable_view()));
  return array;
}

}  // namespace longhaul::codec
