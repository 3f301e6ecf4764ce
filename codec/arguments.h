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
// A known dtype, a shape that CheckShape takes, and memory that is there and aligned.
Status CheckTensor(const void* data, Dtype dtype, const Shape& shape);
// A blob of the codec `name` with these parameters, and of this shape.
Status CheckBlob(const BlobHeader& header, CodecId codec, const CodecParameters& parameters,
                 std::string_view name, const Shape& shape);

// How Encode of `codec` begins: checks its arguments. Gives the header of the blob, which still
// lacks the payload's size and the count of non-finite tiles.
StatusOr<BlobHeader> BeginEncode(const Codec& codec, const TensorView& in,
                                 std::span<std::byte> workspace, std::span<const std::byte> out,
                                 const EncodeResult* result);
// How Encode ends: the payload is in `out`, behind the place of the header.
void FinishEncode(const BlobHeader& header, std::span<std::byte> out, EncodeResult* result);
// How Decode of `codec` begins: checks its arguments and the blob's header, which it gives.
StatusOr<BlobHeader> BeginDecode(const Codec& codec, std::span<const std::byte> blob,
                                 std::span<std::byte> workspace, const MutableTensorView& out);
// The blob of an empty tensor, by a codec whose blobs differ in size.
Status CheckEmptyBlob(const BlobHeader& header);

}  // namespace longhaul::codec
