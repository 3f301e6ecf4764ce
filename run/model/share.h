// Which part of a parameter a rank of a tensor-parallel group holds. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "run/model/model_spec.h"
#include "run/model/parameter.h"

namespace longhaul::model {

// The ranks of a group.
struct Ranks {
  uint32_t count = 1;    // ranks that share a stage's matrices
  uint32_t experts = 1;  // parts of a block's experts, each replicated on count / experts ranks
  // sequence parallel: each rank has a part of the tokens between split matrices
  bool share_tokens = false;
};

// Indices from `begin` up to, but not including, `end`.
struct Range {
  uint32_t begin = 0, end = 0;
  friend bool operator==(const Range&, const Range&) = default;
};

struct Share {
  // ascending; columns if the split is along columns, else rows; empty: the rank holds nothing
  std::vector<Range> ranges;
  // Number of consecutive ranks that hold these same ranges. If several ranks hold a part of a
  // split parameter, its gradient is summed over them.
  uint32_t holders = 1;
};

// Returns the part of a parameter that `rank` holds. Aborts unless `rank` is below ranks.count.
// kInvalidArgument names heads, channels or experts that cannot be split over this number of ranks.
StatusOr<Share> ShareOf(const ModelSpec& spec, const Parameter& parameter, uint32_t rank,
                        const Ranks& ranks);

// Every number of parts into which `ranks` ranks can divide a block's experts, ascending: the
// common divisors of `ranks` and the number of experts. Only 1 if the model has no experts.
std::vector<uint32_t> PartsOfExperts(const ModelSpec& spec, uint32_t ranks);

// Elements that are consecutive in the whole parameter and in the share, row-major.
struct Stretch {
  uint64_t first = 0, count = 0;  // elements; `first` is an index in the whole parameter
  friend bool operator==(const Stretch&, const Stretch&) = default;
};
// All elements of a share, in its order.
std::vector<Stretch> StretchesOf(const Parameter& parameter, const Share& share);

}  // namespace longhaul::model
