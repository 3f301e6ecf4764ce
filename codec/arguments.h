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
Status CheckWorkspace(std::span<std::byte> workspace, size_t needed);
// A blob of the codec `name` with these parameters, and of this shape.
Status CheckBlob(const BlobHeader& header, CodecId codec, const CodecParameters& parameters,
                 std::string_view name, const Shape& shape);

}  // namespace longhaul::codec
