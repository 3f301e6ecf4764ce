#include "proto/wire/chunk_word.h"

#include "proto/wire/little_endian.h"

namespace longhaul::wire {
namespace {

constexpr size_t kAskBytes = 24, kNotHereBytes = 8;
constexpr auto kAsk = std::byte{1}, kNotHere = std::byte{2};

std::span<std::byte> BytesOf(std::string& text) {
  return std::as_writable_bytes(std::span(text));
}

Status NoWord(std::span<const std::byte> bytes) {
  return InvalidArgument(
      "expected a word about chunks, of {} or {} bytes, got {} bytes that are none", kAskBytes,
      kNotHereBytes, bytes.size());
}

}  // namespace

std::string EncodeChunkWord(const ChunkWord& word) {
  if (const auto* not_here = std::get_if<ChunkNotHere>(&word)) {
    std::string text(kNotHereBytes, '\0');
    const std::span<std::byte> out = BytesOf(text);
    out[0] = kNotHere;
    PutLe(out, 4, not_here->request);
    return text;
  }
  const auto& ask = std::get<ChunkAsk>(word);
  std::string text(kAskBytes, '\0');
  const std::span<std::byte> out = BytesOf(text);
  out[0] = kAsk;
  out[1] = std::byte{ask.validation};
  out[2] = std::byte{ask.mask};
  PutLe(out, 4, ask.request);
  PutLe(out, 8, ask.source);
  PutLe(out, 12, ask.shard);
  PutLe(out, 16, ask.chunk);
  return text;
}

StatusOr<ChunkWord> DecodeChunkWord(std::span<const std::byte> bytes) {
  if (bytes.size() == kNotHereBytes && bytes[0] == kNotHere) {
    for (size_t i = 1; i < 4; ++i) {
      if (bytes[i] != std::byte{0}) return NoWord(bytes);
    }
    return ChunkNotHere{.request = GetLe<uint32_t>(bytes, 4)};
  }
  if (bytes.size() != kAskBytes || bytes[0] != kAsk || bytes[1] > std::byte{1} ||
      bytes[2] > std::byte{1} || bytes[3] != std::byte{0}) {
    return NoWord(bytes);
  }
  return ChunkAsk{.request = GetLe<uint32_t>(bytes, 4),
                  .validation = bytes[1] == std::byte{1},
                  .mask = bytes[2] == std::byte{1},
                  .source = GetLe<uint32_t>(bytes, 8),
                  .shard = GetLe<uint32_t>(bytes, 12),
                  .chunk = GetLe<uint64_t>(bytes, 16)};
}

std::string EncodeChunkPieceHeader(uint32_t request) {
  std::string text(kChunkPieceHeaderBytes, '\0');
  PutLe(BytesOf(text), 0, request);
  return text;
}

StatusOr<ChunkPiece> DecodeChunkPiece(std::span<const std::byte> bytes) {
  if (bytes.size() <= kChunkPieceHeaderBytes) {
    return InvalidArgument("expected a piece of a chunk, of more than {} bytes, got {}",
                           kChunkPieceHeaderBytes, bytes.size());
  }
  return ChunkPiece{GetLe<uint32_t>(bytes, 0), bytes.subspan(kChunkPieceHeaderBytes)};
}

}  // namespace longhaul::wire
