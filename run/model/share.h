// What a rank of a tensor-parallel group holds of a parameter. Pure.
#ifndef LONGHAUL_RUN_MODEL_SHARE_H_
#define LONGHAUL_RUN_MODEL_SHARE_H_

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "run/model/model_spec.h"
#include "run/model/parameter.h"

namespace longhaul::model {

// The ranks of a group.
struct Ranks {
  uint32_t count = 1;         // ranks that share a stage's matrices
  uint32_t experts = 1;       // parts of a block's experts, each whole on count / experts ranks
  bool share_tokens = false;  // between split matrices each has a part of the tokens
};

struct Range {
  uint32_t begin = 0, end = 0;
  friend bool operator==(const Range&, const Range&) = default;
};

struct Share {
  std::vector<Range> ranges;  // ascending; of columns where the split is along columns, else of
                              // rows; none: has nothing of it
  // Ranks with these ranges, neighbours. Where a split parameter has more than one, its gradient is
  // summed over them.
  uint32_t holders = 1;
};

// `rank` < `ranks.count`. kInvalidArgument naming heads, channels or experts that so many ranks
// cannot share.
StatusOr<Share> ShareOf(const ModelSpec& spec, const Parameter& parameter, uint32_t rank,
                        const Ranks& ranks);

// Into how many parts so many ranks can divide a block's experts, ascending: every number that
// divides both. One alone where the model has no experts.
std::vector<uint32_t> PartsOfExperts(const ModelSpec& spec, uint32_t ranks);

// Elements that follow each other in the whole parameter and in the share, row-major.
struct Stretch {
  uint64_t first = 0, count = 0;  // in the whole
  friend bool operator==(const Stretch&, const Stretch&) = default;
};
// All of a share, in its order.
std::vector<Stretch> StretchesOf(const Parameter& parameter, const Share& share);

}  // namespace longhaul::model

#endif  // LONGHAUL_RUN_MODEL_SHARE_H_
