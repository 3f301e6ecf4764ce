// Messages by which a worker fetches chunks of data sets (docs/design/data_sets.md) from another
// worker that reads the same data sets, over a separate link (worker/epoch/chunk_peers.h). Requests
// and "not here" travel on the link's control lane, pieces of chunks on its bulk lane
// (transport/p2p/link.h). Little-endian. "Not here": the other worker does not have the chunk.
//
//   a request, 24 bytes               "not here", 8 bytes      a piece
//   0   1 byte   1                    0   1 byte   2           0   4 bytes  request
//   1   1 byte   0 training,          1   3 bytes  zero        4   ...      the chunk's next bytes,
//                1 validation         4   4 bytes  request                  at least one
//   2   1 byte   0 tokens, 1 mask
//   3   1 byte   zero
//   4   4 bytes  request
//   8   4 bytes  source: number of a data set in the run's list
//   12  4 bytes  shard: number of a file of this data set
//   16  8 bytes  chunk: number of a chunk of this file
//
// `request` is the number of the request: the requesting side counts its requests from 0. The sizes
// and hashes of chunks are in the run's list of data sets, which both sides have. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>

#include "base/status.h"

namespace longhaul::wire {

// A request.
struct ChunkAsk {
  uint32_t request = 0;
  bool validation = false, mask = false;  // mask: the loss masks instead of the tokens
  uint32_t source = 0, shard = 0;
  uint64_t chunk = 0;
  friend bool operator==(const ChunkAsk&, const ChunkAsk&) = default;
};
struct ChunkNotHere {
  uint32_t request = 0;
  friend bool operator==(const ChunkNotHere&, const ChunkNotHere&) = default;
};
using ChunkWord = std::variant<ChunkAsk, ChunkNotHere>;

std::string EncodeChunkWord(const ChunkWord& word);
// kInvalidArgument: neither a request nor "not here".
StatusOr<ChunkWord> DecodeChunkWord(std::span<const std::byte> bytes);

inline constexpr size_t kChunkPieceHeaderBytes = 4;
struct ChunkPiece {
  uint32_t request = 0;
  std::span<const std::byte> bytes;  // points into the argument of DecodeChunkPiece
};
// Returns the 4 bytes before the chunk's bytes.
std::string EncodeChunkPieceHeader(uint32_t request);
// kInvalidArgument: not a piece.
StatusOr<ChunkPiece> DecodeChunkPiece(std::span<const std::byte> bytes);

}  // namespace longhaul::wire
