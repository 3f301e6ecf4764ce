// aqsgd: quantized differences of activations (AQ-SGD). Both sides of a boundary keep the message m
// last sent for every training sample. A sample that comes again travels as Q(x - m). Both sides
// then keep m + Q(x - m), which the receiver uses as the activation.
//
// Record of a sample (message_store.h), 16 + Align16(2 x tokens x channels) bytes:
//
//   offset size  field
//        0    2  int16 c: the elements are the activation times 2^c
//        2   14  zero
//       16       tokens x channels fp16, zero-padded
//
// Payload. Every section starts at a multiple of 16 bytes and is zero-padded to one:
//
//   section    bytes             contents
//   samples    8 x samples       the sample's number; all ones where the tensor has no ids
//   checks     8 x samples       XXH3-64 of the record before this tensor (1 for 0); 0: none
//   kinds      1 x samples       Kind
//   exponents  2 x samples       int16: c of a whole sample; g of a difference
//   scales     2 x channels      fp16, >= 0; only where a sample is a difference
//   bodies     of every sample   whole: 2 x tokens x channels, fp16
//                                difference: tokens x ceil(channels / 64) x 8 b, tiles of b bit
//                                planes (planes.h) of q + 2^(b-1), a token's last one padded
//
// All samples of a tensor are coded against the records from before the tensor. If a sample comes
// twice, the later one stays. The kind of a sample, in this order:
//   - kTransient, whole and not stored: it has no id (validation, files), or has a NaN or an
//     infinity, which becomes fp16's NaN. Its record, if any, does not change.
//   - kStored, whole: it has no record; or the record's c no longer suits the sample, because its
//     largest magnitude times 2^c is outside [2^4, 2^15) and not 0.
//   - kDifference otherwise.
//
// Encoding, in fp32, each operation rounded once. Whole: c brings the sample's largest finite
// magnitude into [2^12, 2^13); h = fp16(x 2^c). Difference: d = x 2^c - m; g brings the sample's
// largest |d| into [2^12, 2^13), but at most 40, and is 0 where all are 0; scale of a channel =
// fp16(max |d 2^g| / (2^(b-1) - 1)) over all samples that are differences, and their tokens; q =
// (d 2^g) / scale (0 where scale is 0) rounded to nearest even, clamped to +-(2^(b-1) - 1). Both
// sides: m' = fp16(m + (q scale) 2^-g), clamped to +-65504 before it is rounded. Decoding: x = h
// 2^-c or m' 2^-c; a half that is not finite gives NaN.
//
//   parameters in the header   offset size
//   bits b (2..8)                   0    1
//   zero                            1   15
#pragma once

#include <cstdint>
#include <string>

#include "codec/aqsgd/arithmetic.h"
#include "codec/blob.h"

namespace longhaul::codec::aqsgd {

inline constexpr CodecId kId{7};
inline constexpr uint32_t kMinBits = 2, kMaxBits = 8;
struct Params {
  uint32_t bits = 4;
};

// Offsets count from the start of the payload.
struct Layout {
  uint64_t samples = 0, checks = 0, kinds = 0, exponents = 0;
  uint64_t variable = 0;          // where scales or bodies begin
  uint64_t scales_bytes = 0;      // if there are any
  uint64_t whole_bytes = 0;       // a sample's body
  uint64_t difference_bytes = 0;  // a sample's body
  uint64_t tiles_per_token = 0;
};

// The shape has passed CheckShape and has elements.
Layout MakeLayout(const Shape& shape, const Params& params);
// Returns the size of a payload that has this number of differences.
uint64_t PayloadBytes(const Shape& shape, const Params& params, uint64_t differences);
uint64_t MaxPayloadBytes(const Shape& shape, const Params& params);
uint64_t MinPayloadBytes(const Shape& shape, const Params& params);
// Returns the size of a sample's record; 0 for a shape without elements.
uint64_t RecordBytes(const Shape& shape);

// "aqsgd:bits=4"
std::string CodecString(const Params& params);
CodecParameters ToHeader(const Params& params);
// kInvalidArgument for values that no encoder writes.
StatusOr<Params> FromHeader(const CodecParameters& parameters);

}  // namespace longhaul::codec::aqsgd
