// Chooses what a stage does next. The worker's executor drives this pure scheduling policy with
// real events, the simulator with virtual ones.
//
// One StagePolicy is one stage's view of one global step (training or validation). It schedules
// slices of microbatches (base/ids.h); a microbatch may be one slice. Backwards always run in one
// order (SliceOrder): gradients then accumulate in one order, and results do not depend on timing.
// Not thread-safe; no I/O; never blocks. A wrong call order aborts, in all builds.
#pragma once

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
  // Maximum number of microbatches in flight: forward begun, backward not ended. The schedule's
  // DepthRule may change it (EffectiveDepth). The policy counts it in slices.
  uint32_t depth = 1;
  // Validation: no backwards. A microbatch is in flight until the stage below has taken its output.
  // Under any schedule max(depth, kLeastOutputs) microbatches may be in flight.
  bool forward_only = false;
  // How far activations run ahead of gradients on the wire, in microbatches. With whole
  // microbatches (slices = 1), gradient i may leave when activation i + lead - 1, or the last one
  // of the step, has arrived. 0: gradients leave as soon as they exist. A stage's interface carries
  // activations down and gradients up; the lead lets activations go first. No stage above may have
  // less depth than the lead, or the two stages wait for each other.
  uint32_t activation_lead = 0;
};

// In a forward-only pass at least this many microbatches may be in flight, because the depth of
// some schedules is too small to keep long lines busy.
inline constexpr uint32_t kLeastOutputs = 4;

// The depth that the schedule allows, given options.depth.
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

  // Tells that the input of `slice`, a decoded activation, can be used. Call it once for each
  // slice, in any order, but never for the first stage, which has all its inputs from the start.
  void InputReady(Slice slice);
  // Tells that the gradient of the output of `slice` can be used. Call it once for each slice,
  // after the slice's forward has begun, but never for the last stage, which makes its own
  // gradients.
  void GradientReady(Slice slice);
  // Forward-only: tells that the stage below has taken the output of `slice`. Outputs are taken in
  // order, after their forward; MayBeTaken says whether `slice` is next. Not called for the last
  // stage.
  void OutputTaken(Slice slice);
  bool MayBeTaken(Slice slice) const;

  // Returns the work to run now. nullopt: work is running, an event must come first, or the step is
  // done. Changes nothing.
  std::optional<Work> Next() const;
  // Call Begin before and End after running the result of Next(), one piece of work at a time.
  void Begin(const Work& work);
  void End(const Work& work);

  // True if all forwards and (unless forward_only) all backwards have ended.
  bool Done() const;
  // Call it if Next() is nullopt. True: the stage waits for the input of its next forward, and
  // perhaps for a gradient too. False: it waits only for a gradient or, if forward_only, for the
  // stage below to take an output.
  bool AwaitsInput() const;
  // How many gradients (of slices) may leave, counted from the first in their order; later ones are
  // held back. Never falls; equals all of the step once all inputs are ready.
  uint32_t GradientsThatMayLeave() const;
  bool AllForwardsBegun() const { return forwards_begun_ == all_; }
  bool AllBackwardsBegun() const { return backwards_begun_ == all_; }
  // Microbatches in flight; a partly begun one counts whole.
  uint32_t in_flight() const { return (SlicesInFlight() + order_.slices() - 1) / order_.slices(); }
  uint32_t depth() const { return depth_; }

 private:
  uint32_t SlicesInFlight() const {
    return forwards_begun_ - (options_.forward_only ? outputs_taken_ : backwards_ended_);
  }
  bool HasRoom() const { return SlicesInFlight() < depth_ * order_.slices(); }

  PolicyOptions options_;
  SliceOrder order_;
  uint32_t all_;  // slices of the step; the counters below count slices, too, except depth_
  uint32_t depth_;
  // Indexed by the slice's position in the order of its direction.
  std::vector<bool> input_ready_, gradient_ready_;
  uint32_t forwards_begun_ = 0, forwards_ended_ = 0;
  uint32_t backwards_begun_ = 0, backwards_ended_ = 0;
  uint32_t outputs_taken_ = 0;
  std::optional<Work> running_;
  uint32_t inputs_ready_;
};

}  // namespace longhaul::schedule
