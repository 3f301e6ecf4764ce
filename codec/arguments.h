// Checks the arguments of Encode and Decode, in the same way for all codecs.
//
// Threads: pure functions. Errors: kInvalidArgument; BeginDecode also returns kUnimplemented for a
// blob of another version.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "base/status.h"
#include "codec/blob.h"
#include "codec/codec.h"

namespace longhaul::codec {

// Alignment of workspaces in bytes. AlignWorkspace rounds a size up to a multiple of 64.
inline constexpr size_t kWorkspaceAlignment = 64;
constexpr size_t AlignWorkspace(size_t bytes) {
  return (bytes + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
}

// Returns whether a tensor of this shape has no elements.
bool Empty(const Shape& shape);
// Checks that the dtype is known and that CheckShape accepts the shape. If the tensor has elements,
// `data` must not be null and must be aligned to the size of an element.
Status CheckTensor(const void* data, Dtype dtype, const Shape& shape);
// Checks that the header has this codec, these parameters and this shape. `name` is the codec's
// name in error messages.
Status CheckBlob(const BlobHeader& header, CodecId codec, const CodecParameters& parameters,
                 std::string_view name, const Shape& shape);

// The first step of an Encode of `codec`: checks the arguments, also that `result` is not null.
// Returns the blob's header, in which the codec still has to set payload_bytes and nonfinite_tiles.
// `workspace` may be empty if codec.WorkspaceBytes is 0.
StatusOr<BlobHeader> BeginEncode(const Codec& codec, const TensorView& in,
                                 std::span<std::byte> workspace, std::span<const std::byte> out,
                                 const EncodeResult* result);
// The last step of an Encode: writes the header to the start of `out`, and fills *result. The
// payload is already in `out`, from byte kBlobHeaderBytes on. Cannot fail.
void FinishEncode(const BlobHeader& header, std::span<std::byte> out, EncodeResult* result);
// The first step of a Decode of `codec`: checks the arguments and the header. Returns the header.
StatusOr<BlobHeader> BeginDecode(const Codec& codec, std::span<const std::byte> blob,
                                 std::span<std::byte> workspace, const MutableTensorView& out);
// Checks that the blob of an empty tensor has no payload, for a codec whose blobs differ in size.
Status CheckEmptyBlob(const BlobHeader& header);

}  // namespace longhaul::codec
