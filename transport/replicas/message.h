// What replicas write to each other. A message is a header and a payload that ends it; numbers are
// little-endian:
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
// Payloads, with sender and receiver:
//
//   1 gradients   contributor to owner: of each dense piece, in order, fp32; bf16; or a section of
//                 codec/sdp4bit in groups of 128, transformed
//   2 index       contributor to owner: u32 bits of the largest kept magnitude; u32 flags (1: there
//                 is a NaN or an infinity, and the bitmap is all zeros); bitmap of the kept
//                 positions (codec/tagc/select.h)
//   3 union       owner to contributor: u32 flags (1: a replica has a NaN or an infinity, and no
//                 sketch follows; 2: the union is the receiver's own index, and there is no
//                 bitmap); i32 exponent s of fixed-point numbers x 2^s; u32 rows of the sketch's
//                 tables; u32 seed; u32 count of positions left out; u32 zero; bitmap of all
//                 contributors' kept positions; u32 each position that is left out
//   4 sketch      contributor to owner: u32 each cell (codec/tagc/sketch.h); i32 each number that
//                 is left out
//   5 parameters  owner to all: of each piece, dense ones first, fp32; bf16; or a section of
//                 codec/sdp4bit in groups of 2048, the difference
//
// Threads: pure functions. Errors: kInvalidArgument; kUnimplemented for another version. The bytes
// may be hostile.
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
inline std::span<std::byte> PayloadOf(std::span<std::byte> message) {
  return message.subspan(kMessageHeaderBytes);
}
inline std::span<const std::byte> PayloadOf(std::span<const std::byte> message) {
  return message.subspan(kMessageHeaderBytes);
}
StatusOr<MessageHeader> ParseMessage(std::span<const std::byte> message);

struct IndexPayload {
  uint32_t largest = 0;  // bits of the largest magnitude
  bool nonfinite = false;
  std::vector<uint64_t> bitmap;
};
constexpr uint64_t IndexBytes(uint64_t positions) {
  return 8 + (positions + 63) / 64 * 8;
}
void WriteIndex(const IndexPayload& index, std::span<std::byte> out);
// Bits from `positions` on are zero.
StatusOr<IndexPayload> ParseIndex(std::span<const std::byte> payload, uint64_t positions);

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
// `own`: the receiver's index, which must be part of the union. Checks that left-out positions are
// in the union and in order, and that the sketch's size is reasonable for the other positions.
StatusOr<UnionPayload> ParseUnion(std::span<const std::byte> payload, uint64_t positions,
                                  std::span<const uint64_t> own);

// Returns words at `offset` of `bytes`, which must be long enough.
std::vector<uint32_t> GetWords(std::span<const std::byte> bytes, uint64_t offset, uint64_t count);
void PutWords(std::span<const uint32_t> words, std::span<std::byte> out, uint64_t offset);

}  // namespace longhaul::replicas
