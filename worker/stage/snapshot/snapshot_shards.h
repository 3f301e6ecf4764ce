// Reads arrays of a checkpoint that data-parallel replicas wrote in pieces: each replica writes the
// part that it owns. The array "NAME@FIRST.SUFFIX" holds consecutive elements of "NAME.SUFFIX" from
// element FIRST on. A reader assembles the elements that it needs, so the number of replicas may
// have changed since.
//
// Pure functions, thread-safe. Errors: kFailedPrecondition naming the missing array.
#pragma once

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

// .master: fp32 parameters, which the optimizer updates if replicas compute with a rounded copy.
// .residual: error feedback, the part of the gradients that lossy compression has left for later
// steps.
inline constexpr std::string_view kMaster = ".master", kResidual = ".residual";

// WholeName splits "NAME@FIRST.SUFFIX" into "NAME.SUFFIX" and FIRST. A name without '@' is a whole
// array: WholeName returns this name and 0. PieceName is the reverse; its suffix is empty or begins
// with a dot.
std::pair<std::string, uint64_t> WholeName(const std::string& name);
std::string PieceName(const std::string& parameter, uint64_t first, std::string_view suffix);

class ArrayPieces {
 public:
  // Indexes `arrays`, which must outlive this object.
  explicit ArrayPieces(std::span<const NamedArray> arrays);

  // Returns true if there is at least one piece of the array `name`, given as "NAME.SUFFIX".
  bool Has(const std::string& name) const { return by_name_.contains(name); }
  // Reads elements [first, first + out.size()) of the array `name` ("NAME.SUFFIX"), row-major, from
  // any number of pieces.
  Status Read(const std::string& name, uint64_t first, std::span<float> out) const;
  // Whether any array is in pieces.
  bool HasPieces() const { return has_pieces_; }

 private:
  struct Piece {
    uint64_t first = 0;
    const NamedArray* array = nullptr;
  };
  std::map<std::string, std::vector<Piece>> by_name_;
  bool has_pieces_ = false;
};

// Returns a snapshot with which a stage without data-parallel replicas can continue: the optimizer
// state is whole, and parameters have the values of their .master arrays. A snapshot without pieces
// is returned unchanged.
StatusOr<StageSnapshot> WithoutPieces(const StageSnapshot& snapshot);

}  // namespace longhaul::worker
