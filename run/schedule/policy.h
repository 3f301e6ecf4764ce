// What a stage does next: the pure scheduling policy that the worker's executor drives with real
// events and the simulator with virtual ones.
//
// One StagePolicy is one stage's view of one global step (training or validation). What it
// schedules are slices (base/ids.h); a microbatch may be one. Backwards run in their order
// (SliceOrder), always, so that gradients accumulate in one order and results do not
// depend on timing. Not thread-safe; no I/O; never blocks. Violations of the call order are
// programming errors (checked in all builds).
#ifndef LONGHAUL_RUN_SCHEDULE_POLICY_H_
#define LONGHAUL_RUN_SCHEDULE_POLICY_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "run/kinds/schedules.h"

namespace longhaul::schedule {

struct PolicyOptions {
  ScheduleKind kind = ScheduleKind::kLinkAware;
  StageIndex stage{0};
  uint32_t stages = 1;
  uint32_t microbatches = 1;
  uint32_t slices = 1;  // of each microbatch
  // Microbatches whose forward has begun and whose backward has not ended, at most. kOneFOneB
  // lowers it to the stages from this one on, kGpipe needs `microbatches`. It is kept in slices, as
  // many as so many microbatches have.
  uint32_t depth = 1;
  // Validation: no backwards. At most `depth` outputs, or kLeastOutputs, wait for the stage below
  // to take them; of no schedule more.
  bool forward_only = false;
  // The order of data on the wire: a gradient may leave when the activations of so many
  // microbatches from its place in the order on have come in (or all of the step). 0: as soon as it
  // exists. A stage's interfaces carry activations down and gradients up; with a lead the
  // activations' way is through before the gradients need all of it. No stage above may have less
  // depth, or both would wait for each other.
  uint32_t activation_lead = 0;
};

// Outputs of a forward-only pass that may always wait for the stage below, so that a line is used
// where the plan's depth is that of a schedule without long lines.
inline constexpr uint32_t kLeastOutputs = 4;

// What the schedule makes of options.depth.
uint32_t EffectiveDepth(const PolicyOptions& options);

enum class Task : uint8_t { kForward, kBackward };

struct Work {
  Task task;
  Slice slice;
  friend bool operator==(const Work&, const Work&) = default;
};

class StagePolicy {
 public:
  explicit StagePolicy(const PolicyOptions& options);

  // The input of `slice` can be used (decoded activation). The first stage has all its inputs
  // from the start and is never told.
  void InputReady(Slice slice);
  // The output gradient can be used. The last stage makes its own and is never told.
  void GradientReady(Slice slice);
  // Forward-only: the stage below uses this output. Outputs are taken in order, after their
  // forward: MayBeTaken says whether this one is next. The last stage is never told.
  void OutputTaken(Slice slice);
  bool MayBeTaken(Slice slice) const;

  // What to run now; nullopt = wait for an event. Does not change anything.
  std::optional<Work> Next() const;
  // Call around running what Next() gave; one at a time.
  void Begin(const Work& work);
  void End(const Work& work);

  // All forwards and (unless forward_only) all backwards have ended.
  bool Done() const;
  // Where Next() is nullopt: whether the input of the next forward is what it waits for (and maybe
  // a gradient too), or a gradient alone.
  bool AwaitsInput() const;
  // So many gradients may leave, the first ones in their order; another one that exists is to be
  // kept. Never falls; all of the step once all inputs are ready.
  uint32_t GradientsThatMayLeave() const;
  bool AllForwardsBegun() const { return forwards_begun_ == all_; }
  bool AllBackwardsBegun() const { return backwards_begun_ == all_; }
  // Microbatches, begun ones too.
  uint32_t in_flight() const { return (SlicesInFlight() + order_.slices() - 1) / order_.slices(); }
  uint32_t depth() const { return depth_; }

 private:
  uint32_t SlicesInFlight() const {
    return forwards_begun_ - (options_.forward_only ? outputs_taken_ : backwards_ended_);
  }
  bool HasRoom() const { return SlicesInFlight() < depth_ * order_.slices(); }

  PolicyOptions options_;
  SliceOrder order_;
  uint32_t all_;  // slices of the step; all that follows counts slices, but for depth_
  uint32_t depth_;
  // By place in the order of the direction.
  std::vector<bool> input_ready_, gradient_ready_;
  uint32_t forwards_begun_ = 0, forwards_ended_ = 0;
  uint32_t backwards_begun_ = 0, backwards_ended_ = 0;
  uint32_t outputs_taken_ = 0;
  std::optional<Work> running_;
  uint32_t inputs_ready_;
};

}  // namespace longhaul::schedule

#endif  // LONGHAUL_RUN_SCHEDULE_POLICY_H_
