// Checks that the slices (sequence chunks) of microbatches go through a Stage in an allowed order.
// One thread at a time.
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
  // `slices`: number of slices of each microbatch.
  explicit SliceTurns(uint32_t slices) : order_(slices) {}

  // Return OK if the slice may run now. kInvalidArgument: the slice may not run now; the message
  // says why. These functions change nothing.
  Status CheckForward(Slice slice) const;
  Status CheckBackward(Slice slice) const;
  Status CheckEvaluation(Slice slice) const;
  // Record that the slice runs. Call the check first.
  void TakeForward(Slice slice) { pending_.insert(slice); }
  void TakeBackward(Slice slice);
  void TakeEvaluation(Slice slice) { next_evaluated_ = (slice.index + 1) % order_.slices(); }

  // Returns true if at least one slice has run, and each slice that ran forward also ran backward.
  bool StepIsDone() const { return pending_.empty() && last_backward_.has_value(); }
  // Begins a new step: forgets the slices of this one.
  void EndStep();

  std::string NameOf(Slice slice) const;  // "microbatch 3", "slice 1 of microbatch 3"

 private:
  const SliceOrder order_;
  std::set<Slice> pending_;  // slices that ran forward and not yet backward
  std::optional<Slice> last_backward_;
  uint32_t next_evaluated_ = 0;
};

}  // namespace longhaul::worker
