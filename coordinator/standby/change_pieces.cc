#include "coordinator/standby/change_pieces.h"

#include "proto/rpc/channel.h"

namespace longhaul::coordinator {

std::vector<v1::StoreChangePiece> CutChange(const v1::StoreChange& change) {
  const std::string bytes = change.SerializeAsString();
  std::vector<v1::StoreChangePiece> pieces;
  size_t at = 0;
  do {
    v1::StoreChangePiece& piece = pieces.emplace_back();
    piece.set_bytes(bytes.substr(at, kChunkBytes));
    at += kChunkBytes;
    piece.set_ends(at >= bytes.size());
  } while (at < bytes.size());
  return pieces;
}

StatusOr<std::optional<v1::StoreChange>> ChangeJoiner::Add(const v1::StoreChangePiece& piece) {
  if (piece.bytes().size() > kMaxChangeBytes - bytes_.size()) {
    bytes_.clear();
    return DataLoss("a change of the store has more than the {} MiB that one may have",
                    kMaxChangeBytes >> 20);
  }
  bytes_ += piece.bytes();
  if (!piece.ends()) return std::nullopt;
  v1::StoreChange change;
  const bool whole = change.ParseFromString(bytes_);
  bytes_.clear();
  if (!whole) return absl::DataLossError("the pieces of a change of the store make no change");
  return change;
}

}  // namespace longhaul::coordinator
