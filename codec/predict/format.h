// predict: the token at a position explains most of its activation, and both sides can know the
// token. Both keep running means of the decoded values by token and by pair of tokens; another
// codec codes the difference from these means.
//
//   predict:pairs=65536,rate=0.02,prior=0/gauss:bits=4,block=128
//
// Tables of a side of a boundary (tables.h): A, a row of C means for every token id; P, a row for
// each of 2^L hashes of (previous id, id), none with pairs=0; a count n for every row. All begin as
// zeros. Token i of the tensor has id t and the rows A[t] and P[h], h the upper L bits of
// (t_before a + t b mod 2^64); the first token of a sample has t_before = 0 (arithmetic.h).
//
// Coding, in fp32, each operation rounded once: p = A[t] + P[h] (A[t] where there is no P);
// r = x - p; the other codec encodes r, as a tensor of fp32; x' = r' + p. What of r and x' is not
// finite becomes the NaN 0x7fc00000. Encoder and decoder have the same r'.
//
// Learning, with the tables as they were before the tensor on the right sides. Of each row, only
// tokens count whose x' are all smaller than 2^64 in magnitude (so no token with a NaN); there are
// m of them in the tensor:
//   n    = n + m, at most 2^24
//   rate = max(min(m, 2^24) / (n + prior), the parameter rate); prior = 0 for rows of A
//   P[h] = P[h] + rate (mean of (x' - A[t]) - P[h])
//   A[t] = A[t] + rate (mean of x' - A[t])
// A mean is the sum in the order of tokens, the first one as it is, times 1 / m. A row that is seen
// for the first time takes the mean whole; with a prior, m / (m + prior) of it.
//
// The check is a hash of all updates so far, FirstCheck before the first. A tensor that teaches
// makes it NextCheck(check, sum), the sum being over all values of all rows that it has changed.
//
//   payload offset size        contents
//        0            8        check of the tables before this tensor; 0 without ids
//        8            1        Kind: 0 without ids, as files have it: the other codec codes x
//                              itself, in the tensor's dtype. 1 predicted (validation).
//                              2 predicted, and the tables learn
//        9            1        bytes of an id: 2 where the vocabulary has at most 65,536; else 4;
//                              0 without ids
//       10            6        zero
//       16            k N S    ids of N samples of S tokens, zero-padded to a multiple of 16 bytes
//                     rest     a blob of the other codec
//
//   parameters in the header   offset size
//   L (1..20); 0: no pairs          0    1
//   number of the other codec       1    1
//   prior (0..1000)                 2    2
//   rate (0..1), fp32               4    4
//   zero                            8    8
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "codec/blob.h"
#include "codec/predict/arithmetic.h"

namespace longhaul::codec::predict {

inline constexpr CodecId kId{10};
inline constexpr uint32_t kMostLog2Pairs = 20, kMostPrior = 1000;

struct Params {
  uint32_t log2_pairs = 16;  // 0: no pairs
  uint32_t prior = 0;
  float rate = 0.02f;
  uint32_t pairs() const { return log2_pairs == 0 ? 0 : 1u << log2_pairs; }
};
// Whether codec strings and headers may have these values.
bool Possible(const Params& params);
// "predict:pairs=65536,rate=0.02,prior=0", without the other codec.
std::string CodecString(const Params& params);
CodecParameters ToHeader(const Params& params, CodecId other);
// kInvalidArgument for values that no encoder writes.
StatusOr<Params> FromHeader(const CodecParameters& parameters);
CodecId OtherCodec(const CodecParameters& parameters);

// The part of a payload before the other codec's blob.
struct Front {
  uint64_t check = 0;
  Kind kind = Kind::kPlain;
  uint32_t id_bytes = 0;
  friend bool operator==(const Front&, const Front&) = default;
};
constexpr uint32_t BytesOfId(uint32_t vocabulary) {
  return vocabulary <= 65536 ? 2 : 4;
}
// Returns the offset of the other codec's blob in the payload.
uint64_t OtherOffset(const Shape& shape, uint32_t id_bytes);

// `payload` has kFrontBytes.
void WriteFront(const Front& front, std::byte* payload);
// Reads the front of a payload of this shape, which may be hostile. Checks that the kind exists,
// that the ids fit the kind, and that at least the header of another blob follows.
StatusOr<Front> ReadFront(std::span<const std::byte> payload, const Shape& shape);
// Reads the header of the other codec's blob, which is the rest of the payload.
StatusOr<BlobHeader> ReadOther(std::span<const std::byte> other);
// Writes the ids and the zeros that pad their section.
void WriteIds(std::span<const uint32_t> ids, uint32_t id_bytes, std::byte* section);
uint32_t IdAt(const std::byte* section, uint32_t id_bytes, uint64_t index);

// Returns the ids in a blob of predict that a decoder has accepted; empty if it has none.
std::vector<uint32_t> IdsOf(std::span<const std::byte> blob);

}  // namespace longhaul::codec::predict
