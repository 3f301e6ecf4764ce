// What a rank of a tensor-parallel group holds of a parameter. Pure.
#ifndef LONGHAUL_RUN_MODEL_SHARE_H_
#define LONGHAUL_RUN_MODEL_SHARE_H_

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "run/model/model_spec.h"
#include "run/model/parameter.h"

namespace longhaul::model {

struct Range {
  uint32_t begin = 0, end = 0;
  friend bool operator==(const Range&, const Range&) = default;
};

struct Share {
  std::vector<Range>
      ranges;  // ascending; of columns where the split is along columns, else of rows
  // Ranks with these ranges. Where a split parameter has more than one, its gradient is summed over
  // them.
  uint32_t holders = 1;
};

// `rank` < `ranks`. kInvalidArgument naming heads or channels that so many ranks cannot share.
StatusOr<Share> ShareOf(const ModelSpec& spec, const Parameter& parameter, uint32_t rank,
                        uint32_t ranks);

// Elements that follow each other in the whole parameter and in the share, row-major.
struct Stretch {
  uint64_t first = 0, count = 0;  // in the whole
  friend bool operator==(const Stretch&, const Stretch&) = default;
};
// All of a share, in its order.
std::vector<Stretch> StretchesOf(const Parameter& parameter, const Share& share);

}  // namespace longhaul::model

#endif  // LONGHAUL_RUN_MODEL_SHARE_H_
