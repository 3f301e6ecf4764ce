// Compresses a checkpoint's file without loss, for slow lines. The exponents of fp32 numbers are
// similar to each other, so exponents are compressed; signs and mantissas are not. Files of
// parameters and of AdamW's state shrink by a sixth. A coded (compressed) file is a sequence of
// blocks:
//
//   4 bytes   number of the file's bytes that this block holds, 1 to kShardBlockBytes
//   4 bytes   number of bytes in the rest of the block
//   rest      the exponents of the 4-byte words as a Zstandard frame; then sign and mantissa of
//             each word, 3 bytes; then the bytes after the last whole word. Or the file's bytes
//             unchanged, if the compressed form would not be shorter
//
// All numbers are little-endian. Blocks have no checksum: ShardWriter::Commit checks the hash of
// the decoded file. A ShardDecoder is used by one thread at a time.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace longhaul::worker {

inline constexpr size_t kShardBlockBytes = size_t{256} << 10;
inline constexpr size_t kShardBlockHeaderBytes = 8;

// Codes 1 to kShardBlockBytes bytes as one block with its header. Cannot fail.
std::string EncodeShardBlock(std::span<const std::byte> raw);

// Decodes a stream that arrives in pieces of any size.
class ShardDecoder {
 public:
  // Takes the next piece of the stream, and appends the decoded bytes of all blocks that are now
  // complete to `out`. kDataLoss: a block is invalid; do not use the decoder again. The stream may
  // be hostile.
  Status Take(std::span<const std::byte> coded, std::vector<std::byte>* out);
  // Returns true if the pieces so far end at the end of a block, as a complete stream does.
  bool between_blocks() const { return pending_.empty(); }

 private:
  std::vector<std::byte> pending_;  // an incomplete block
};

}  // namespace longhaul::worker
