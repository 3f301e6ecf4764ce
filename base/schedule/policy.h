// What a stage does next: the pure scheduling policy that the worker's executor drives with real
// events and the simulator with virtual ones.
//
// One StagePolicy is one stage's view of one global step (training or validation). Backwards run in
// microbatch order, always, so that gradients accumulate in one order and results do not depend on
// timing. Not thread-safe; no I/O; never blocks. Violations of the call order are programming
// errors (checked in all builds).
#ifndef LONGHAUL_BASE_SCHEDULE_POLICY_H_
#define LONGHAUL_BASE_SCHEDULE_POLICY_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "base/config/run_spec.h"
#include "base/ids.h"

namespace longhaul::schedule {

struct PolicyOptions {
  ScheduleKind kind = ScheduleKind::kLinkAware;
  StageIndex stage{0};
  uint32_t stages = 1;
  uint32_t microbatches = 1;
  // Microbatches whose forward has begun and whose backward has not ended, at most. kOneFOneB
  // lowers it to stages - stage, kGpipe needs `microbatches`.
  uint32_t depth = 1;
  // Validation: no backwards, depth does not bind.
  bool forward_only = false;
  SendOrder order = SendOrder::kAsReady;  // not kAuto
};

enum class Task : uint8_t { kForward, kBackward };

struct Work {
  Task task;
  Microbatch microbatch;
  friend bool operator==(const Work&, const Work&) = default;
};

class StagePolicy {
 public:
  explicit StagePolicy(const PolicyOptions& options);

  // The input of `microbatch` can be used (decoded activation). The first stage has all its inputs
  // from the start and is never told.
  void InputReady(Microbatch microbatch);
  // The output gradient can be used. The last stage makes its own and is never told.
  void GradientReady(Microbatch microbatch);

  // For GradientsMayLeave: an output of this stage has left it (the network has taken it), in
  // order; the stage above has all its inputs (the second stage is never told: the first one always
  // has).
  void ActivationSent();
  void UpstreamHasAllInputs();

  // What to run now; nullopt = wait for an event. Does not change anything.
  std::optional<Work> Next() const;
  // Call around running what Next() gave; one at a time.
  void Begin(const Work& work);
  void End(const Work& work);

  // All forwards and (unless forward_only) all backwards have ended.
  bool Done() const;
  // The stage below is to be told when this becomes true.
  bool HasAllInputs() const { return inputs_missing_ == 0; }
  // Once true, true until the end of the step. A gradient that exists before is to be kept.
  bool GradientsMayLeave() const;
  uint32_t in_flight() const { return forwards_begun_ - backwards_ended_; }
  uint32_t depth() const { return depth_; }

 private:
  PolicyOptions options_;
  uint32_t depth_;
  std::vector<bool> input_ready_, gradient_ready_;
  uint32_t forwards_begun_ = 0, forwards_ended_ = 0;
  uint32_t backwards_begun_ = 0, backwards_ended_ = 0;
  std::optional<Work> running_;
  uint32_t inputs_missing_, activations_sent_ = 0;
  bool upstream_has_all_inputs_;
};

}  // namespace longhaul::schedule

#endif  // LONGHAUL_BASE_SCHEDULE_POLICY_H_
