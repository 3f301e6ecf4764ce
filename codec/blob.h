// A blob is an encoded tensor: a header of 64 bytes, which describes the tensor and the codec, then
// a payload in the format of the codec. A `.lh` file is one blob and nothing else.
//
//   offset size  field (little-endian)
//        0    4  magic "LHBL"
//        4    2  version of this header, of the codec's payload and of rounding.h (2)
//        6    1  number of the codec's family (kId in the format.h of the family's folder)
//        7    1  dtype of the tensor that was encoded: 1 fp32, 2 fp16, 3 bf16
//        8    4  samples
//       12    4  tokens
//       16    4  channels
//       20    4  zero
//       24    8  bytes of the payload, which follows at offset 64 and ends the blob
//       32   16  parameters of the codec (its format.h), zero-padded
//       48    8  number of tiles (or blocks) that had a NaN or an infinity. The codecs none, bf16,
//                  fp16, aqsgd and zip count elements instead (zip after rounding to bf16).
//                  predict stores what its inner codec counts
//       56    8  zero
//
// A tile, or block, is a group of neighbouring elements that a codec encodes with one scale.
//
// Threads: pure functions. Errors: kInvalidArgument, or kUnimplemented for another version. The
// bytes to parse may be hostile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "codec/codec.h"

namespace longhaul::codec {

inline constexpr size_t kBlobHeaderBytes = 64;
// Offset of the field with the payload's size, for code that cannot parse the header because the
// header is in device memory.
inline constexpr size_t kPayloadBytesOffset = 24;
inline constexpr uint16_t kBlobVersion = 2;
// Maximum number of elements of a tensor: 16 GiB of fp32, far more than stage activations have.
// Up to this limit, sizes computed from a shape do not overflow, and a tile's index fits 32 bits.
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

// Writes the header to the first kBlobHeaderBytes of `out`, which must not be shorter. Cannot fail.
void WriteBlobHeader(const BlobHeader& header, std::span<std::byte> out);

// Parses the header of a whole blob. Checks every field that does not depend on the codec, and that
// the payload is exactly the rest of `blob`.
StatusOr<BlobHeader> ParseBlobHeader(std::span<const std::byte> blob);
// The same for a blob of `blob_bytes` bytes, if only its beginning is in memory. `start` must
// contain at least the header.
StatusOr<BlobHeader> ParseBlobHeader(std::span<const std::byte> start, uint64_t blob_bytes);

// Returns the size in bytes of the blob with this header. Checks nothing: `header` must have
// kBlobHeaderBytes bytes from an encoder of this program.
uint64_t BlobBytes(std::span<const std::byte> header);

}  // namespace longhaul::codec
