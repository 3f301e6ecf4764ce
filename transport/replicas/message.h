// The messages that replicas send each other (reducer.h). A message is a header, then a payload to
// the message's end. Numbers are little-endian:
//
//   offset size  field
//        0    4  magic "LHRG"
//        4    2  version (1)
//        6    1  kind
//        7    1  zero
//        8    8  step
//       16    4  bucket
//       20    4  owner of the shard that the message is about
//       24    8  fingerprint of the layout (layout.h)
//       32    8  bytes of the payload
//
// Payloads, by kind. A contributor is a replica that does not own the shard. A position is the
// index of an element among the shard's sparse pieces (Piece::at):
//
//   1 gradients   contributor to owner: each dense piece, in order: fp32; bf16; or a section of
//                 codec/sdp4bit in groups of 128, transformed
//   2 index       contributor to owner: u32 bits of the largest kept magnitude, as fp32; u32 flags
//                 (1: a gradient is NaN or infinite, and the bitmap is all zeros); bitmap of the
//                 kept positions (codec/tagc/select.h)
//   3 union       owner to contributor: u32 flags (1: a gradient of a replica is NaN or infinite,
//                 and no sketch follows; 2: the union is the receiver's own index, and there is
//                 no bitmap); i32 exponent s: the sketch has round(x 2^s) for a number x; u32
//                 rows of the sketch's tables; u32 the sketch's seed; u32 count of positions left
//                 out of the sketch; u32 zero; bitmap of the positions that any contributor kept;
//                 the positions left out, a u32 each
//   4 sketch      contributor to owner: a u32 for each cell (codec/tagc/sketch.h); an i32,
//                 round(x 2^s), for each position left out
//   5 parameters  owner to all: each piece, dense ones first: fp32; bf16; or a section of
//                 codec/sdp4bit in groups of 2048, which has the differences to the values that all
//                 replicas have
//
// Threads: pure functions. Errors: kInvalidArgument; kUnimplemented for another version. Parsers
// take hostile bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace longhaul::replicas {

inline constexpr uint16_t kMessageVersion = 1;
inline constexpr size_t kMessageHeaderBytes = 40;

enum class MessageKind : uint8_t {
  kGradients = 1,
  kIndex = 2,
  kUnion = 3,
  kSketch = 4,
  kParameters = 5,
};
std::string_view ToString(MessageKind kind);

struct MessageHeader {
  MessageKind kind = MessageKind::kGradients;
  uint64_t step = 0;
  uint32_t bucket = 0, owner = 0;
  uint64_t fingerprint = 0;
};

// Makes a message with a payload of `payload_bytes` zeros.
std::vector<std::byte> NewMessage(const MessageHeader& header, uint64_t payload_bytes);
// Returns the payload, a view into `message`, which must have a whole header.
inline std::span<std::byte> PayloadOf(std::span<std::byte> message) {
  return message.subspan(kMessageHeaderBytes);
}
inline std::span<const std::byte> PayloadOf(std::span<const std::byte> message) {
  return message.subspan(kMessageHeaderBytes);
}
StatusOr<MessageHeader> ParseMessage(std::span<const std::byte> message);

struct IndexPayload {
  uint32_t largest = 0;  // bits of the largest kept magnitude, as fp32
  bool nonfinite = false;
  std::vector<uint64_t> bitmap;
};
constexpr uint64_t IndexBytes(uint64_t positions) {
  return 8 + (positions + 63) / 64 * 8;
}
// WriteIndex and WriteUnion: `out` must have exactly the payload's size.
void WriteIndex(const IndexPayload& index, std::span<std::byte> out);
// Refuses an index that has bits from `positions` on.
StatusOr<IndexPayload> ParseIndex(std::span<const std::byte> payload, uint64_t positions);

// The fields of a union in the table above. `is_receivers` is flag 2: the union is the receiver's
// own index. `bitmap` is empty if `is_receivers` or `nonfinite` is set.
struct UnionPayload {
  bool nonfinite = false;
  bool is_receivers = false;
  int32_t exponent = 0;
  uint32_t rows = 0, seed = 0;
  std::vector<uint64_t> bitmap;
  std::vector<uint32_t> left_out;
};
inline constexpr uint64_t kUnionFixedBytes = 24;
inline constexpr int32_t kMostExponent = 126;
uint64_t UnionBytes(const UnionPayload& all);
void WriteUnion(const UnionPayload& all, std::span<std::byte> out);
// `own`: the bitmap of the receiver's index. Checks that all its positions are in the union, that
// left-out positions are in the union and in order, and that the sketch's size is reasonable for
// the other positions.
StatusOr<UnionPayload> ParseUnion(std::span<const std::byte> payload, uint64_t positions,
                                  std::span<const uint64_t> own);

// GetWords returns, and PutWords writes, little-endian words from byte `offset` on. `bytes` and
// `out` must be long enough.
std::vector<uint32_t> GetWords(std::span<const std::byte> bytes, uint64_t offset, uint64_t count);
void PutWords(std::span<const uint32_t> words, std::span<std::byte> out, uint64_t offset);

}  // namespace longhaul::replicas
