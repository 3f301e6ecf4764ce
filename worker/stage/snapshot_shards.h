// Arrays of a checkpoint that replicas have written in pieces: "NAME@FIRST.SUFFIX" has elements of
// "NAME.SUFFIX" from FIRST on, in a row. Whoever goes on puts together what it needs, whatever the
// number of replicas was and is.
//
// Threads: pure. Errors: kFailedPrecondition naming what is missing.
#ifndef LONGHAUL_WORKER_STAGE_SNAPSHOT_SHARDS_H_
#define LONGHAUL_WORKER_STAGE_SNAPSHOT_SHARDS_H_

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

// What a parameter's owner has where replicas compute with a rounded copy: fp32, stepped by the
// optimizer. And what earlier steps did not send.
inline constexpr std::string_view kMaster = ".master", kResidual = ".residual";

// And back: "NAME.SUFFIX" and FIRST. A name without '@' is that of a whole array.
std::pair<std::string, uint64_t> WholeName(const std::string& name);
std::string PieceName(const std::string& parameter, uint64_t first, std::string_view suffix);

class ArrayPieces {
 public:
  // Of `arrays`, which stay.
  explicit ArrayPieces(std::span<const NamedArray> arrays);

  bool Has(const std::string& name) const { return by_name_.contains(name); }
  // Elements [first, first + out.size()) of the array `name`.
  Status Read(const std::string& name, uint64_t first, std::span<float> out) const;
  // Whether some array is there in pieces.
  bool HasPieces() const { return has_pieces_; }

 private:
  struct Piece {
    uint64_t first = 0;
    const NamedArray* array = nullptr;
  };
  std::map<std::string, std::vector<Piece>> by_name_;
  bool has_pieces_ = false;
};

// What one replica alone goes on with: moments are whole, and parameters are their owners'. A
// checkpoint without pieces stays as it is.
StatusOr<StageSnapshot> WithoutPieces(const StageSnapshot& snapshot);

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_STAGE_SNAPSHOT_SHARDS_H_
