#include "transport/replicas/message.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "codec/tagc/select.h"
#include "codec/tagc/sketch.h"
#include "proto/wire/little_endian.h"

namespace longhaul::replicas {
namespace {

using codec::tagc::BitmapWords;
using wire::GetLe;
using wire::PutLe;

constexpr uint32_t kMagic = 0x4752484c;  // "LHRG"
constexpr uint32_t kNonfinite = 1, kIsReceivers = 2;

Status Wrong(std::string_view what, std::string_view expected, uint64_t got) {
  return InvalidArgument("{}: expected {}, got {}", what, expected, got);
}

std::vector<uint64_t> GetBitmap(std::span<const std::byte> payload, uint64_t offset,
                                uint64_t positions) {
  std::vector<uint64_t> bitmap(BitmapWords(positions));
  for (size_t k = 0; k < bitmap.size(); ++k) bitmap[k] = GetLe<uint64_t>(payload, offset + 8 * k);
  return bitmap;
}
void PutBitmap(std::span<const uint64_t> bitmap, std::span<std::byte> out, uint64_t offset) {
  for (size_t k = 0; k < bitmap.size(); ++k) PutLe<uint64_t>(out, offset + 8 * k, bitmap[k]);
}
bool EndsInZeros(std::span<const uint64_t> bitmap, uint64_t positions) {
  return positions % 64 == 0 || bitmap.back() >> positions % 64 == 0;
}

}  // namespace

std::string_view ToString(MessageKind kind) {
  switch (kind) {
    case MessageKind::kGradients:
      return "gradients";
    case MessageKind::kIndex:
      return "index";
    case MessageKind::kUnion:
      return "union";
    case MessageKind::kSketch:
      return "sketch";
    case MessageKind::kParameters:
      return "parameters";
  }
  return "unknown";
}

std::vector<std::byte> NewMessage(const MessageHeader& header, uint64_t payload_bytes) {
  std::vector<std::byte> message(kMessageHeaderBytes + payload_bytes);
  PutLe<uint32_t>(message, 0, kMagic);
  PutLe<uint16_t>(message, 4, kMessageVersion);
  PutLe<uint8_t>(message, 6, static_cast<uint8_t>(header.kind));
  PutLe<uint64_t>(message, 8, header.step);
  PutLe<uint32_t>(message, 16, header.bucket);
  PutLe<uint32_t>(message, 20, header.owner);
  PutLe<uint64_t>(message, 24, header.fingerprint);
  PutLe<uint64_t>(message, 32, payload_bytes);
  return message;
}

StatusOr<MessageHeader> ParseMessage(std::span<const std::byte> message) {
  if (message.size() < kMessageHeaderBytes) {
    return Wrong("a replica's message", fmt::format("{} bytes or more", kMessageHeaderBytes),
                 message.size());
  }
  if (GetLe<uint32_t>(message, 0) != kMagic) {
    return absl::InvalidArgumentError("these bytes are not a replica's message: no magic LHRG");
  }
  if (const auto version = GetLe<uint16_t>(message, 4); version != kMessageVersion) {
    return absl::UnimplementedError(
        fmt::format("a replica's message has version {}, this program has {}; run the same "
                    "program for all replicas",
                    version, kMessageVersion));
  }
  const auto kind = GetLe<uint8_t>(message, 6);
  if (kind < static_cast<uint8_t>(MessageKind::kGradients) ||
      kind > static_cast<uint8_t>(MessageKind::kParameters)) {
    return Wrong("kind of a replica's message", "1 to 5", kind);
  }
  if (GetLe<uint8_t>(message, 7) != 0) {
    return Wrong("byte 7 of a replica's message", "0", GetLe<uint8_t>(message, 7));
  }
  const auto payload = GetLe<uint64_t>(message, 32);
  if (payload != message.size() - kMessageHeaderBytes) {
    return Wrong("payload of a replica's message", fmt::format("{} bytes", payload),
                 message.size() - kMessageHeaderBytes);
  }
  return MessageHeader{.kind = static_cast<MessageKind>(kind),
                       .step = GetLe<uint64_t>(message, 8),
                       .bucket = GetLe<uint32_t>(message, 16),
                       .owner = GetLe<uint32_t>(message, 20),
                       .fingerprint = GetLe<uint64_t>(message, 24)};
}

void WriteIndex(const IndexPayload& index, std::span<std::byte> out) {
  PutLe<uint32_t>(out, 0, index.largest);
  PutLe<uint32_t>(out, 4, index.nonfinite ? kNonfinite : 0);
  PutBitmap(index.bitmap, out, 8);
}

StatusOr<IndexPayload> ParseIndex(std::span<const std::byte> payload, uint64_t positions) {
  if (payload.size() != IndexBytes(positions)) {
    return Wrong("index", fmt::format("{} bytes", IndexBytes(positions)), payload.size());
  }
  const auto flags = GetLe<uint32_t>(payload, 4);
  if (flags > kNonfinite) return Wrong("flags of an index", "0 or 1", flags);
  IndexPayload index{.largest = GetLe<uint32_t>(payload, 0),
                     .nonfinite = flags == kNonfinite,
                     .bitmap = GetBitmap(payload, 8, positions)};
  constexpr uint32_t kLargestFinite = 0x7f7fffff;
  if (index.largest > kLargestFinite) {
    return Wrong("largest magnitude of an index", "the bits of a finite number", index.largest);
  }
  if (!EndsInZeros(index.bitmap, positions)) {
    return InvalidArgument("index: a bit behind its {} positions is set", positions);
  }
  if (index.nonfinite && codec::tagc::Count(index.bitmap) != 0) {
    return absl::InvalidArgumentError("index of numbers that are not finite: it has positions");
  }
  return index;
}

uint64_t UnionBytes(const UnionPayload& all) {
  return kUnionFixedBytes + 8 * all.bitmap.size() + 4 * all.left_out.size();
}

void WriteUnion(const UnionPayload& all, std::span<std::byte> out) {
  PutLe<uint32_t>(out, 0, (all.nonfinite ? kNonfinite : 0) | (all.is_receivers ? kIsReceivers : 0));
  PutLe<uint32_t>(out, 4, static_cast<uint32_t>(all.exponent));
  PutLe<uint32_t>(out, 8, all.rows);
  PutLe<uint32_t>(out, 12, all.seed);
  PutLe<uint32_t>(out, 16, static_cast<uint32_t>(all.left_out.size()));
  PutBitmap(all.bitmap, out, kUnionFixedBytes);
  PutWords(all.left_out, out, kUnionFixedBytes + 8 * all.bitmap.size());
}

StatusOr<UnionPayload> ParseUnion(std::span<const std::byte> payload, uint64_t positions,
                                  std::span<const uint64_t> own) {
  if (payload.size() < kUnionFixedBytes) {
    return Wrong("union", fmt::format("{} bytes or more", kUnionFixedBytes), payload.size());
  }
  const auto flags = GetLe<uint32_t>(payload, 0);
  if (flags > kIsReceivers) return Wrong("flags of a union", "0, 1 or 2", flags);
  UnionPayload all{.nonfinite = flags == kNonfinite,
                   .is_receivers = flags == kIsReceivers,
                   .exponent = static_cast<int32_t>(GetLe<uint32_t>(payload, 4)),
                   .rows = GetLe<uint32_t>(payload, 8),
                   .seed = GetLe<uint32_t>(payload, 12)};
  const uint64_t left_out = GetLe<uint32_t>(payload, 16);
  if (GetLe<uint32_t>(payload, 20) != 0) {
    return Wrong("word 5 of a union", "0", GetLe<uint32_t>(payload, 20));
  }
  const uint64_t bitmap_bytes = all.nonfinite || all.is_receivers ? 0 : 8 * BitmapWords(positions);
  const uint64_t expected = kUnionFixedBytes + bitmap_bytes + 4 * left_out;
  if (payload.size() != expected) {
    return Wrong("union", fmt::format("{} bytes", expected), payload.size());
  }
  if (all.nonfinite) {
    if (left_out != 0 || all.rows != 0 || all.exponent != 0) {
      return absl::InvalidArgumentError("union of numbers that are not finite: it has a sketch");
    }
    return all;
  }
  if (all.exponent < -kMostExponent || all.exponent > kMostExponent) {
    return InvalidArgument("exponent of a union: expected -126 to 126, got {}", all.exponent);
  }
  if (bitmap_bytes != 0) all.bitmap = GetBitmap(payload, kUnionFixedBytes, positions);
  const std::span<const uint64_t> bitmap = all.is_receivers ? own : std::span(all.bitmap);
  if (!EndsInZeros(bitmap, positions)) {
    return InvalidArgument("union: a bit behind its {} positions is set", positions);
  }
  for (size_t word = 0; word < own.size(); ++word) {
    if ((own[word] & ~bitmap[word]) != 0) {
      return absl::InvalidArgumentError("union: a position of this replica's own index is missing");
    }
  }
  const uint64_t count = codec::tagc::Count(bitmap);
  // PlanSketch ends at a fifth of a position in a cell.
  constexpr uint64_t kMostCells = 6;
  const uint64_t cells = codec::tagc::Sketch{all.rows}.cells();
  if (cells > kMostCells * count + codec::tagc::Sketch{1}.cells() ||
      (all.rows == 0 && left_out != count)) {
    return InvalidArgument(
        "union: {} rows of a sketch do not fit {} positions, {} of them left out", all.rows, count,
        left_out);
  }
  all.left_out = GetWords(payload, kUnionFixedBytes + bitmap_bytes, left_out);
  for (size_t k = 0; k < all.left_out.size(); ++k) {
    const uint32_t position = all.left_out[k];
    if (position >= positions || !codec::tagc::Has(bitmap, position) ||
        (k > 0 && all.left_out[k - 1] >= position)) {
      return Wrong("position left out of a sketch", "one of the union's, in order", position);
    }
  }
  return all;
}

std::vector<uint32_t> GetWords(std::span<const std::byte> bytes, uint64_t offset, uint64_t count) {
  std::vector<uint32_t> words(count);
  for (uint64_t k = 0; k < count; ++k) words[k] = GetLe<uint32_t>(bytes, offset + 4 * k);
  return words;
}

void PutWords(std::span<const uint32_t> words, std::span<std::byte> out, uint64_t offset) {
  for (size_t k = 0; k < words.size(); ++k) PutLe<uint32_t>(out, offset + 4 * k, words[k]);
}

}  // namespace longhaul::replicas
