// The header in front of every encoded tensor. A blob describes itself: a `.lh` file is a blob and
// nothing else.
//
//   offset size  field (little-endian)
//        0    4  magic "LHBL"
//        4    2  version of this header, of the codec's payload and of rounding.h (2)
//        6    1  codec: the number of its family (kId in the format.h of its folder)
//        7    1  dtype of the tensor that was encoded: 1 fp32, 2 fp16, 3 bf16
//        8    4  samples
//       12    4  tokens
//       16    4  channels
//       20    4  zero
//       24    8  bytes of the payload, which follows at offset 64 and ends the blob
//       32   16  parameters of the codec (its format.h), zero-padded
//       48    8  tiles (elements for none, bf16, fp16, zip) that had a NaN or an infinity;
//                  zip counts after rounding to bf16
//       56    8  zero
//
// Threads: pure functions. Errors: kInvalidArgument, or kUnimplemented for another version; the
// bytes may be hostile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "codec/codec.h"

namespace longhaul::codec {

inline constexpr size_t kBlobHeaderBytes = 64;
// Offset of the field with the payload's bytes, for code that cannot parse the header because it is
// in device memory.
inline constexpr size_t kPayloadBytesOffset = 24;
inline constexpr uint16_t kBlobVersion = 2;
// 16 GiB of fp32: far above any boundary tensor. Sizes computed from a shape do not overflow, and a
// tile's index fits 32 bits.
inline constexpr uint64_t kMaxElements = uint64_t{1} << 32;

struct BlobHeader {
  CodecId codec{};
  Dtype source_dtype = Dtype::kF32;
  Shape shape;
  uint64_t payload_bytes = 0;
  CodecParameters parameters{};
  uint64_t nonfinite_tiles = 0;
};

// Returns kInvalidArgument if the tensor has more than kMaxElements elements.
Status CheckShape(const Shape& shape);

// `out` must have kBlobHeaderBytes.
void WriteBlobHeader(const BlobHeader& header, std::span<std::byte> out);

// Checks every field that does not depend on the codec, and that the payload is the rest of `blob`.
StatusOr<BlobHeader> ParseBlobHeader(std::span<const std::byte> blob);
// Parses the header of a blob of `blob_bytes`. Only `start`, which contains the header, is in
// memory.
StatusOr<BlobHeader> ParseBlobHeader(std::span<const std::byte> start, uint64_t blob_bytes);

// Returns the size of the blob with this header. Checks nothing: the header must come from an
// encoder of this program.
uint64_t BlobBytes(std::span<const std::byte> header);

}  // namespace longhaul::codec
