// Makes text of token ids.
//
// Pure; thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "run/tokens/pieces.h"

namespace longhaul {

class SampleText {
 public:
  // Each token is a byte.
  SampleText() = default;
  // `pieces`: not null.
  explicit SampleText(std::shared_ptr<const TokenPieces> pieces) : pieces_(std::move(pieces)) {}

  // Returns printable UTF-8 (base/printable.h) in which lines end as the model wrote them. Bytes
  // that are no UTF-8 are replaced; at the end, bytes of a character that is not whole are left
  // out. Ids without a piece are left out.
  std::string Of(std::span<const uint32_t> ids) const;

 private:
  std::shared_ptr<const TokenPieces> pieces_;  // null: bytes
};

}  // namespace longhaul
