// Lossless coding of a checkpoint's file for slow lines. The exponents of fp32 numbers are similar,
// so they are compressed apart from sign and mantissa: parameters and AdamW's state shrink by a
// sixth. A coded file is a sequence of blocks:
//
//   4 bytes   bytes of the file in this block, 1 to kShardBlockBytes
//   4 bytes   bytes that follow
//   rest      the exponents of its whole words as a Zstandard frame; then sign and mantissa of each
//             word, 3 bytes; then the bytes after the last whole word. Or the file's bytes
//             unchanged, if that is not longer
//
// All numbers are little-endian. The file's hash is checked elsewhere (ShardWriter::Commit).
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace longhaul::worker {

inline constexpr size_t kShardBlockBytes = size_t{256} << 10;
inline constexpr size_t kShardBlockHeaderBytes = 8;

// Codes 1 to kShardBlockBytes bytes as one block with its header.
std::string EncodeShardBlock(std::span<const std::byte> raw);

// Decodes a stream that arrives in pieces of any size.
class ShardDecoder {
 public:
  // Appends the bytes that can be decoded now to `out`. kDataLoss: not a valid block; discard the
  // decoder.
  Status Take(std::span<const std::byte> coded, std::vector<std::byte>* out);
  // Whether the stream ended at a block's border.
  bool between_blocks() const { return pending_.empty(); }

 private:
  std::vector<std::byte> pending_;  // an incomplete block
};

}  // namespace longhaul::worker
