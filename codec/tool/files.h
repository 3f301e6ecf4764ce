// Reads array files, and encodes and decodes whole arrays in buffers that it allocates.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/aligned_buffer.h"
#include "base/status.h"
#include "codec/codec.h"
#include "codec/tool/npy.h"

namespace longhaul::codec {

struct Encoded {
  AlignedBuffer blob;  // MaxEncodedBytes; bytes() is the part that was written
  EncodeResult result;
  std::span<const std::byte> bytes() const { return blob.span().first(result.bytes); }
};

// Reads a .npy file. `bf16`: as for ParseNpy (npy.h).
StatusOr<NpyArray> ReadArray(const std::string& path, bool bf16);
// Reads a .npy file. If `dtype` is given, the file must have it, else the result is
// kInvalidArgument. Files of bf16 can only be read with `dtype`.
StatusOr<NpyArray> ReadInput(const std::string& path, std::optional<Dtype> dtype);
StatusOr<Encoded> EncodeArray(const Codec& codec, const NpyArray& array, const Context& context);
StatusOr<NpyArray> DecodeArray(const Codec& codec, std::span<const std::byte> blob,
                               const Shape& shape, Dtype dtype, const Context& context = {});

}  // namespace longhaul::codec
