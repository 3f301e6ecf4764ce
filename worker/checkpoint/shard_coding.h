// A checkpoint's file on its way over a slow line, without loss: of every fp32 number the exponent,
// which says little that its neighbours do not say, is coded apart. Parameters and AdamW's moments
// take a sixth less. A file is a sequence of blocks:
//
//   4 bytes   bytes of the file in this block, 1 to kShardBlockBytes
//   4 bytes   bytes that follow
//   rest      the exponents of its whole words as a frame of Zstandard; then of each word sign and
//             mantissa, 3 bytes; then what is left of the file's bytes. Or the file's bytes as they
//             are, where that is no longer
//
// All numbers are little-endian. The file's hash is checked elsewhere (ShardWriter::Commit).
#ifndef LONGHAUL_WORKER_CHECKPOINT_SHARD_CODING_H_
#define LONGHAUL_WORKER_CHECKPOINT_SHARD_CODING_H_

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace longhaul::worker {

inline constexpr size_t kShardBlockBytes = size_t{256} << 10;
inline constexpr size_t kShardBlockHeaderBytes = 8;

// A block, with its header, that holds `raw`. `raw`: 1 to kShardBlockBytes.
std::string EncodeShardBlock(std::span<const std::byte> raw);

// Takes the stream in pieces of any size.
class ShardDecoder {
 public:
  // The file's bytes that are known now, appended to `out`. kDataLoss: these bytes are no blocks;
  // the decoder is of no use any more.
  Status Take(std::span<const std::byte> coded, std::vector<std::byte>* out);
  // Nothing of a block is left over.
  bool between_blocks() const { return pending_.empty(); }

 private:
  std::vector<std::byte> pending_;  // a block that is not whole yet
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_CHECKPOINT_SHARD_CODING_H_
