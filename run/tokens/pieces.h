// The table of the bytes that each token of a vocabulary stands for. The CLI makes it of a
// tokenizer, and workers make text of token ids with it. A file:
//
//   offset size  field (little-endian)
//        0    8  magic "LHPIECES"
//        8    4  version (1)
//       12    4  tokens
//       16       end of each token's bytes, 4 bytes each, counted from the first token's first byte
//                then the bytes of all tokens
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace longhaul {

// Limits of a table that is read.
inline constexpr uint32_t kMostPieces = 1u << 22;
inline constexpr size_t kMostPieceTableBytes = size_t{64} << 20;

class TokenPieces {
 public:
  // `pieces`: the bytes of each token, by id; empty for tokens that are no text.
  static std::string Encode(const std::vector<std::string>& pieces);
  // kInvalidArgument: `file` is no table, or is longer than the limits.
  static StatusOr<TokenPieces> Parse(std::string file);

  uint32_t size() const { return count_; }
  // Returns "" for an id without a piece. Valid as long as this object.
  std::string_view Of(uint32_t id) const;

 private:
  explicit TokenPieces(std::string file, uint32_t count) : file_(std::move(file)), count_(count) {}
  uint32_t EndOf(uint32_t id) const;

  std::string file_;
  uint32_t count_ = 0;
};

}  // namespace longhaul
