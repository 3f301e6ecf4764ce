// Encodes and decodes whole arrays, with the necessary buffers.
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
  AlignedBuffer blob;
  EncodeResult result;
  std::span<const std::byte> bytes() const { return blob.span().first(result.bytes); }
};

StatusOr<NpyArray> ReadArray(const std::string& path, bool bf16);
// `dtype`: the file's type by the caller; "fp16" for an fp32 file is a mistake.
StatusOr<NpyArray> ReadInput(const std::string& path, std::optional<Dtype> dtype);
StatusOr<Encoded> EncodeArray(const Codec& codec, const NpyArray& array, const Context& context);
StatusOr<NpyArray> DecodeArray(const Codec& codec, std::span<const std::byte> blob,
                               const Shape& shape, Dtype dtype, const Context& context = {});

}  // namespace longhaul::codec
