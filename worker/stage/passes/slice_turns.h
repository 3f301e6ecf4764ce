// Checks the order in which the slices of microbatches go through a Stage of any kind. Pure. One
// thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "base/ids.h"
#include "base/status.h"

namespace longhaul::worker {

class SliceTurns {
 public:
  // `slices`: sequence chunks of each microbatch.
  explicit SliceTurns(uint32_t slices) : order_(slices) {}

  // Whether the slice may run now. kInvalidArgument names the slice that must, or must not, have
  // run before. Changes nothing.
  Status CheckForward(Slice slice) const;
  Status CheckBackward(Slice slice) const;
  Status CheckEvaluation(Slice slice) const;
  // Records that the slice runs; call the check first.
  void TakeForward(Slice slice) { pending_.insert(slice); }
  void TakeBackward(Slice slice);
  void TakeEvaluation(Slice slice) { next_evaluated_ = (slice.index + 1) % order_.slices(); }

  // Whether at least one slice ran, and all ran forward and backward.
  bool StepIsDone() const { return pending_.empty() && last_backward_.has_value(); }
  void EndStep();

  std::string NameOf(Slice slice) const;  // "microbatch 3", "slice 1 of microbatch 3"

 private:
  const SliceOrder order_;
  std::set<Slice> pending_;  // after forward, before backward
  std::optional<Slice> last_backward_;
  uint32_t next_evaluated_ = 0;
};

}  // namespace longhaul::worker
