// Reads array files, and encodes and decodes whole arrays in newly allocated buffers.
//
// Threads: pure functions. Errors: those of the file, kInvalidArgument for a bad file, and those of
// Codec (codec.h).
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
  AlignedBuffer blob;  // has MaxEncodedBytes; the first result.bytes are the blob
  EncodeResult result;
  std::span<const std::byte> bytes() const { return blob.span().first(result.bytes); }
};

// Reads a .npy file. `bf16`: as for ParseNpy (npy.h).
StatusOr<NpyArray> ReadArray(const std::string& path, bool bf16);
// As ReadArray, but reads uint16 as bf16 if `dtype` is bf16. kInvalidArgument: `dtype` is set, and
// the file has another dtype.
StatusOr<NpyArray> ReadInput(const std::string& path, std::optional<Dtype> dtype);
StatusOr<Encoded> EncodeArray(const Codec& codec, const NpyArray& array, const Context& context);
StatusOr<NpyArray> DecodeArray(const Codec& codec, std::span<const std::byte> blob,
                               const Shape& shape, Dtype dtype, const Context& context = {});

}  // namespace longhaul::codec
