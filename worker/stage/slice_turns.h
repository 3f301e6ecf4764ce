// The order of slices through a stage, as Stage has it: what a stage of whatever kind refuses.
// Pure. One thread at a time.
#ifndef LONGHAUL_WORKER_STAGE_SLICE_TURNS_H_
#define LONGHAUL_WORKER_STAGE_SLICE_TURNS_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "base/ids.h"
#include "base/status.h"

namespace longhaul::worker {

class SliceTurns {
 public:
  // So many slices of each microbatch.
  explicit SliceTurns(uint32_t slices) : order_(slices) {}

  // Whether it may go now. kInvalidArgument naming what came before it, or did not; changes
  // nothing.
  Status CheckForward(Slice slice) const;
  Status CheckBackward(Slice slice) const;
  Status CheckEvaluation(Slice slice) const;
  // It may, and it goes.
  void TakeForward(Slice slice) { pending_.insert(slice); }
  void TakeBackward(Slice slice);
  void TakeEvaluation(Slice slice) { next_evaluated_ = (slice.index + 1) % order_.slices(); }

  // Some have gone, and all of these both ways.
  bool StepIsDone() const { return pending_.empty() && last_backward_.has_value(); }
  void EndStep();

  std::string NameOf(Slice slice) const;  // "microbatch 3", "slice 1 of microbatch 3"

 private:
  const SliceOrder order_;
  std::set<Slice> pending_;  // between forward and backward
  std::optional<Slice> last_backward_;
  uint32_t next_evaluated_ = 0;
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_STAGE_SLICE_TURNS_H_
