// aqsgd: quantized differences of activations (AQ-SGD). For every training sample, sender and
// receiver both keep a message m: the activation as the receiver last had it. When a sample x comes
// again, the sender sends only Q(x - m), the quantized difference. Both sides then replace m by
// m + Q(x - m), which is also the activation that the receiver uses.
//
// Record of a sample (message_store.h), 16 + Align16(2 x tokens x channels) bytes:
//
//   offset size  field
//        0    2  int16 c: the elements are m times 2^c
//        2   14  zero
//       16       tokens x channels fp16, zero-padded
//
// Payload. Sections start at multiples of 16 bytes, and are zero-padded to such multiples:
//
//   section    bytes             contents
//   samples    8 x samples       the sample's number; all ones where the tensor has no ids
//   checks     8 x samples       XXH3-64 of the sample's record as it was before this tensor, or 1
//                                if the hash is 0. 0: the sample has no record
//   kinds      1 x samples       Kind
//   exponents  2 x samples       int16: c of a whole sample; g of a difference
//   scales     2 x channels      fp16, >= 0; missing if no sample is a difference
//   bodies     of every sample   whole: 2 x tokens x channels, fp16
//                                difference: tokens x ceil(channels / 64) x 8 b. A tile of 64
//                                channels has b bit planes (planes.h) of q + 2^(b-1). The last
//                                tile of a token is padded
//
// All samples of a tensor are coded against the records from before the tensor. If a tensor has the
// same sample twice, the later one's record is kept. The first rule that applies gives the kind:
//   - kTransient, sent whole and not stored: the sample has no id (in validation and in files), or
//     has a NaN or an infinity, which becomes fp16's NaN. Its record, if any, does not change.
//   - kStored, sent whole and stored: the sample has no record, or c of the record no longer suits
//     it. c suits if the largest magnitude of the sample times 2^c is 0 or lies in [2^4, 2^15).
//   - kDifference: all other samples.
//
// Encoding, in fp32, each operation rounded once. Here m includes the record's factor 2^c.
//   Whole:      c brings the sample's largest finite magnitude into [2^12, 2^13); h = fp16(x 2^c).
//   Difference: d = x 2^c - m. g brings the sample's largest |d| into [2^12, 2^13), but is at most
//               40, and 0 if all d are 0. A channel's scale = fp16(max |d 2^g| / (2^(b-1) - 1)),
//               with the maximum over all tokens of all samples that are differences. q =
//               (d 2^g) / scale (0 where scale is 0), rounded to nearest even, clamped to
//               +-(2^(b-1) - 1).
//   Both sides: m' = fp16(m + (q scale) 2^-g), clamped to +-65504 before it is rounded.
// Decoding: x = h 2^-c for a whole sample, m' 2^-c for a difference; NaN if h is not finite.
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
  uint64_t variable = 0;          // where the scales begin, or the bodies if there are no scales
  uint64_t scales_bytes = 0;      // size of the scales, if there are any
  uint64_t whole_bytes = 0;       // body of a whole sample
  uint64_t difference_bytes = 0;  // body of a difference
  uint64_t tiles_per_token = 0;
};

// The shape must have passed CheckShape and have elements, here and in the next three functions.
Layout MakeLayout(const Shape& shape, const Params& params);
// Returns the size in bytes of a payload with this number of samples of the kind kDifference.
uint64_t PayloadBytes(const Shape& shape, const Params& params, uint64_t differences);
uint64_t MaxPayloadBytes(const Shape& shape, const Params& params);
uint64_t MinPayloadBytes(const Shape& shape, const Params& params);
// Returns the size of a sample's record in bytes; 0 for a shape without elements.
uint64_t RecordBytes(const Shape& shape);

// Returns the codec string: "aqsgd:bits=4".
std::string CodecString(const Params& params);
CodecParameters ToHeader(const Params& params);
// Returns kInvalidArgument for values that no encoder writes.
StatusOr<Params> FromHeader(const CodecParameters& parameters);

}  // namespace longhaul::codec::aqsgd
