// The header in front of every encoded tensor. A blob describes itself: a `.lh` file is a blob and
// nothing else.
//
//   offset size  field (little-endian)
//        0    4  magic "LHBL"
//        4    2  version of this header, of the codec's payload and of rounding.h (2)
//        6    1  codec: 1 none, 2 bf16, 3 fp16, 4 fixed, 5 tah, 6 gauss, 7 aqsgd, 8 zip, 9 taco,
//                  10 predict
//        7    1  dtype of the tensor that was encoded: 1 fp32, 2 fp16, 3 bf16
//        8    4  samples
//       12    4  tokens
//       16    4  channels
//       20    4  zero
//       24    8  bytes of the payload, which follows at offset 64 and ends the blob
//       32   16  parameters of the codec (its format.h), zero-padded
//       48    8  tiles (elements for none, bf16, fp16, zip) that had a NaN or an infinity,
//                  zip's in bf16
//       56    8  zero
//
// Threads: pure functions. Errors: kInvalidArgument, or kUnimplemented for another version; the
// bytes may be hostile.
#ifndef LONGHAUL_CODEC_BLOB_H_
#define LONGHAUL_CODEC_BLOB_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/status.h"
#include "codec/codec.h"

namespace longhaul::codec {

inline constexpr size_t kBlobHeaderBytes = 64;
// Where the header has the bytes of the payload, for those who cannot parse: the header of a blob
// in device memory is read there.
inline constexpr size_t kPayloadBytesOffset = 24;
inline constexpr uint16_t kBlobVersion = 2;
// 16 GiB of fp32: far above any boundary tensor. No size computed from a shape overflows, and a
// tile's index fits 32 bits.
inline constexpr uint64_t kMaxElements = uint64_t{1} << 32;

enum class CodecId : uint8_t {
  kNone = 1,
  kBf16 = 2,
  kFp16 = 3,
  kFixed = 4,
  kTah = 5,
  kGauss = 6,
  kAqsgd = 7,
  kZip = 8,
  kTaco = 9,
  kPredict = 10,
};
std::string_view ToString(CodecId id);

using CodecParameters = std::array<std::byte, 16>;

struct BlobHeader {
  CodecId codec = CodecId::kNone;
  Dtype source_dtype = Dtype::kF32;
  Shape shape;
  uint64_t payload_bytes = 0;
  CodecParameters parameters{};
  uint64_t nonfinite_tiles = 0;
};

// kInvalidArgument when the tensor has more than kMaxElements elements.
Status CheckShape(const Shape& shape);

// `out` has at least kBlobHeaderBytes.
void WriteBlobHeader(const BlobHeader& header, std::span<std::byte> out);

// Checks every field that can be checked without knowing the codec, and that the payload is what
// remains of `blob`.
StatusOr<BlobHeader> ParseBlobHeader(std::span<const std::byte> blob);
// The same for a blob of `blob_bytes` of which `start`, the header or more, is at hand.
StatusOr<BlobHeader> ParseBlobHeader(std::span<const std::byte> start, uint64_t blob_bytes);

// Size of a blob with this header, which an encoder of this program wrote.
uint64_t BlobBytes(std::span<const std::byte> header);

}  // namespace longhaul::codec

#endif  // LONGHAUL_CODEC_BLOB_H_
