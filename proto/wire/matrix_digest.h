// The digest of a tied matrix: the token embedding, which is also the model's head. The first and
// the last stage hold a copy each, and compare the digests of their copies at every checkpoint. A
// digest follows a tensor header (tensor_header.h) of kind kMatrixDigest: 8 bytes, little-endian.
//
//   offset size  field
//        0    8  digest   XXH3-64 of a row of digests, 8 bytes each: the XXH3-64 of the matrix
//                         in fp32, then the XXH3-64 of each tensor of the matrix's optimizer state,
//                         in the order of StageSnapshot::moments (worker/stage/stage.h). All
//                         values are those after the step in the tensor header
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "proto/wire/little_endian.h"

namespace longhaul::wire {

inline constexpr size_t kMatrixDigestBytes = 8;

inline void EncodeMatrixDigest(uint64_t digest, std::span<std::byte, kMatrixDigestBytes> out) {
  PutLe<uint64_t>(out, 0, digest);
}

// kInvalidArgument: not 8 bytes.
inline StatusOr<uint64_t> DecodeMatrixDigest(std::span<const std::byte> bytes) {
  if (bytes.size() != kMatrixDigestBytes) {
    return InvalidArgument("matrix digest: expected 8 bytes, got {}", bytes.size());
  }
  return GetLe<uint64_t>(bytes, 0);
}

}  // namespace longhaul::wire
