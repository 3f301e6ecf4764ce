// Any bytes as a word about chunks, and as a piece of one.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "base/fuzz/target.h"
#include "proto/wire/chunk_word.h"

LH_FUZZ_TARGET(wire_chunk_word) {
  namespace wire = longhaul::wire;
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto piece = wire::DecodeChunkPiece(bytes);
  if (piece.ok()) {
    const std::string header = wire::EncodeChunkPieceHeader(piece->request);
    if (!std::ranges::equal(std::as_bytes(std::span(header)), bytes.first(header.size()))) {
      std::abort();
    }
    if (piece->bytes.empty() || header.size() + piece->bytes.size() != size) std::abort();
  }
  const auto word = wire::DecodeChunkWord(bytes);
  if (!word.ok()) return false;
  // Every byte has a meaning: what was read is written as it was.
  const std::string again = wire::EncodeChunkWord(*word);
  if (!std::ranges::equal(std::as_bytes(std::span(again)), bytes)) std::abort();
  return true;
}
