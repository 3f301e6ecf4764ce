// Cuts a change of the store (the SQL statements of one transaction) into pieces, because a change
// may be longer than a gRPC message. The coordinator sends the pieces to its standby.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "longhaul/v1/standby.pb.h"

namespace longhaul::coordinator {

// Maximum size of a change, and of all messages that wait for a standby.
inline constexpr size_t kMaxChangeBytes = size_t{256} << 20;

// Cuts into pieces of 1 MiB (kChunkBytes); the last may be smaller. Returns at least one piece.
std::vector<v1::StoreChangePiece> CutChange(const v1::StoreChange& change);

// Joins the pieces that arrive on one stream, in their order. Threads: one.
class ChangeJoiner {
 public:
  // Returns the change that this piece completes; nullopt: more pieces of the change must come.
  // kDataLoss: the pieces have more than kMaxChangeBytes together, or they are not a change. After
  // an error, the next piece begins a new change.
  StatusOr<std::optional<v1::StoreChange>> Add(const v1::StoreChangePiece& piece);

 private:
  std::string bytes_;
};

}  // namespace longhaul::coordinator
