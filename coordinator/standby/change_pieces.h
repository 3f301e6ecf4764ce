// A change of a store on the wire: in pieces, as it may be longer than a message may be.
#ifndef LONGHAUL_COORDINATOR_STANDBY_CHANGE_PIECES_H_
#define LONGHAUL_COORDINATOR_STANDBY_CHANGE_PIECES_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "longhaul/v1/standby.pb.h"

namespace longhaul::coordinator {

// Of what waits for a standby, and so of a change.
inline constexpr size_t kMaxChangeBytes = size_t{256} << 20;

// Of kChunkBytes each, but for the last.
std::vector<v1::StoreChangePiece> CutChange(const v1::StoreChange& change);

// The reverse, for one stream. One thread.
class ChangeJoiner {
 public:
  // The change that the piece ends, if it ends one. kDataLoss: more than kMaxChangeBytes, or what
  // is no change.
  StatusOr<std::optional<v1::StoreChange>> Add(const v1::StoreChangePiece& piece);

 private:
  std::string bytes_;
};

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_STANDBY_CHANGE_PIECES_H_
