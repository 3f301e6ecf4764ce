// predict: predicts activations from tokens. The token at a position explains most of the
// activation at this position, and the blob tells the receiver the token ids. Both sides keep
// running means of the decoded values: one mean over all tokens, and the difference of each token
// from it. Another codec encodes the differences of the activations from these predictions.
//
//   predict:pairs=0,rate=0.05,prior=4/gauss:bits=5,block=128
//
// Each side of a boundary has tables (tables.h), in which all numbers begin as 0. All rows have C
// numbers, one for each channel. M is one row in fp32. Table A has a row in bf16 for every token
// id. Table P has such a row for each of 2^L hashes of (previous id, id); with pairs=0 there is no
// P. Every row has a count n. A token of the tensor has an id t and the rows A[t] and P[h], where h
// is the upper L bits of (t_before a + t b mod 2^64). t_before is the previous token's id, 0 for
// the first token of a sample. arithmetic.h has a and b.
//
// Coding, in fp32, each operation rounded once: p = (M + A[t]) + P[h], or M + A[t] if there is no
// P; r = x - p; the other codec encodes r, as a tensor of fp32, and decodes it to r'; x' = r' + p.
// Elements of r and x' that are not finite become the NaN 0x7fc00000. Both sides have the same r'.
//
// Learning: a row learns from its tokens in the tensor, M from all of them, but none learns from a
// token with an x' that is NaN or at least 2^64 in magnitude. A row that learns from m > 0 tokens
// changes as follows:
//   n    = n + m, at most 2^24
//   rate = max(min(m, 2^24) / (n + prior), the parameter rate); prior = 0 for M and rows of A
//   A[t] = A[t] + rate (mean of (x' - M) - A[t])
//   P[h] = P[h] + rate (mean of (x' - (M + A[t])) - P[h])
//   M    = M + rate (mean of x' - M)
// This is also the order: A[t] in the line of P is the new row, M is the old one. So P learns only
// what A does not know. As long as n = 0 for M, only M learns: otherwise M and A would both take
// the whole value of the first tensor. New rows of A and P are rounded to bf16, to nearest even.
// A mean is a sum times 1 / m. In rows of A and P it is the sum in the order of tokens, beginning
// with the first value. For M there are kMeanParts sums that begin with 0: sum k has the tokens at
// places k, k + kMeanParts and so on, in this order; the mean's sum is sum 0 + sum 1 and so on.
//
// The check is a hash of all updates so far, by which the two sides compare their tables. It begins
// as FirstCheck. A tensor from which the tables learn changes the check to NextCheck(check, sum),
// with a sum over all values of all rows that the tensor has changed, M included (arithmetic.h).
//
//   payload offset size        contents
//        0            8        check of the tables before this tensor; 0 without ids
//        8            1        Kind. 0: without ids, as in files; the other codec encodes x itself,
//                              in the tensor's dtype. 1: predicted, and the tables do not change
//                              (validation). 2: predicted, and the tables learn
//        9            1        bytes of an id: 2 if the vocabulary has at most 65,536 ids, else 4;
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
  uint32_t log2_pairs = 0;  // 0: no pairs
  uint32_t prior = 4;
  float rate = 0.05f;
  uint32_t pairs() const { return log2_pairs == 0 ? 0 : 1u << log2_pairs; }
};
// Returns whether codec strings and headers may have these values.
bool Possible(const Params& params);
// Returns "predict:pairs=0,rate=0.05,prior=4", without the other codec.
std::string CodecString(const Params& params);
// `other`: the number of the other codec.
CodecParameters ToHeader(const Params& params, CodecId other);
// Returns kInvalidArgument for values that no encoder writes.
StatusOr<Params> FromHeader(const CodecParameters& parameters);
// Returns the number of the other codec.
CodecId OtherCodec(const CodecParameters& parameters);

// The first kFrontBytes of a payload, before the ids and the other codec's blob.
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

// Writes the first kFrontBytes of `payload`.
void WriteFront(const Front& front, std::byte* payload);
// Reads the front of a payload, which may be hostile, of a tensor of this shape. Checks that the
// kind exists, that id_bytes and the check fit the kind, that the ids' padding is zeros, and that
// the payload is long enough for the header of the other codec's blob.
StatusOr<Front> ReadFront(std::span<const std::byte> payload, const Shape& shape);
// Reads the header of the other codec's blob. `other`: the payload from OtherOffset on.
StatusOr<BlobHeader> ReadOther(std::span<const std::byte> other);
// Writes the section of ids, with its padding.
void WriteIds(std::span<const uint32_t> ids, uint32_t id_bytes, std::byte* section);
// Returns the id of token `index` from a section of ids.
uint32_t IdAt(const std::byte* section, uint32_t id_bytes, uint64_t index);

// Returns the ids in a blob that a decoder has accepted. Empty if the blob has no ids or is not a
// blob of predict.
std::vector<uint32_t> IdsOf(std::span<const std::byte> blob);

}  // namespace longhaul::codec::predict
