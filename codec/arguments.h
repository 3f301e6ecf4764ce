// Checks of arguments that all codecs share.
//
// Threads: pure functions. Errors: kInvalidArgument.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "base/status.h"
#include "codec/blob.h"
#include "codec/codec.h"

namespace longhaul::codec {

inline constexpr size_t kWorkspaceAlignment = 64;
constexpr size_t AlignWorkspace(size_t bytes) {
  return (bytes + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
}

// Whether the tensor has no elements.
bool Empty(const Shape& shape);
// Checks for a known dtype, a shape that CheckShape accepts, and non-null, aligned memory.
Status CheckTensor(const void* data, Dtype dtype, const Shape& shape);
// Checks that the header is that of a blob of the codec `name` with these parameters and this
// shape.
Status CheckBlob(const BlobHeader& header, CodecId codec, const CodecParameters& parameters,
                 std::string_view name, const Shape& shape);

// Begins Encode of `codec`: checks its arguments. Returns the blob's header, in which the payload's
// size and the count of non-finite tiles are missing.
StatusOr<BlobHeader> BeginEncode(const Codec& codec, const TensorView& in,
                                 std::span<std::byte> workspace, std::span<const std::byte> out,
                                 const EncodeResult* result);
// Ends Encode: the payload is in `out`, behind the header's bytes.
void FinishEncode(const BlobHeader& header, std::span<std::byte> out, EncodeResult* result);
// Begins Decode of `codec`: checks its arguments and the blob's header, and returns the header.
StatusOr<BlobHeader> BeginDecode(const Codec& codec, std::span<const std::byte> blob,
                                 std::span<std::byte> workspace, const MutableTensorView& out);
// Checks the blob of an empty tensor, for a codec whose blobs differ in size.
Status CheckEmptyBlob(const BlobHeader& header);

}  // namespace longhaul::codec
