#include "run/schedule/policy.h"

#include <algorithm>

#include "base/check.h"
#include "run/plan/chain.h"

namespace longhaul::schedule {

uint32_t EffectiveDepth(const PolicyOptions& options) {
  if (options.forward_only) {
    return std::min(options.microbatches, std::max(options.depth, kLeastOutputs));
  }
  return AllowedDepth(options.kind, options.depth,
                      chain::StagesFrom(options.stage.value(), options.stages),
                      options.microbatches);
}

StagePolicy::StagePolicy(const PolicyOptions& options)
    : options_(options),
      order_(options.slices),
      all_(options.microbatches * options.slices),
      depth_(EffectiveDepth(options)),
      input_ready_(all_, chain::IsFirst(options.stage.value())),
      gradient_ready_(all_, chain::IsLast(options.stage.value(), options.stages)),
      inputs_ready_(chain::IsFirst(options.stage.value()) ? all_ : 0) {
  LH_CHECK(all_ > 0 && depth_ > 0, "a step needs microbatches, slices and depth");
  LH_CHECK(options.stage.value() < options.stages, "stage outside the pipeline");
}

void StagePolicy::InputReady(Slice slice) {
  const uint32_t place = order_.PlaceOf(slice, Direction::kForward);
  LH_CHECK(slice.index < order_.slices() && place < all_, "no such slice");
  LH_CHECK(!input_ready_[place], "an input became ready twice");
  input_ready_[place] = true;
  ++inputs_ready_;
}

void StagePolicy::GradientReady(Slice slice) {
  LH_CHECK(!options_.forward_only, "no gradients in a forward-only step");
  LH_CHECK(
      slice.index < order_.slices() && order_.PlaceOf(slice, Direction::kForward) < forwards_begun_,
      "a gradient before its forward");
  const uint32_t place = order_.PlaceOf(slice, Direction::kBackward);
  LH_CHECK(!gradient_ready_[place], "a gradient became ready twice");
  gradient_ready_[place] = true;
}

void StagePolicy::OutputTaken(Slice slice) {
  LH_CHECK(MayBeTaken(slice), "output {} was taken, and there are {} of which {} were taken",
           order_.PlaceOf(slice, Direction::kForward), forwards_ended_, outputs_taken_);
  ++outputs_taken_;
}

bool StagePolicy::MayBeTaken(Slice slice) const {
  return options_.forward_only && slice.index < order_.slices() &&
         order_.PlaceOf(slice, Direction::kForward) == outputs_taken_ &&
         outputs_taken_ < forwards_ended_;
}

uint32_t StagePolicy::GradientsThatMayLeave() const {
  const uint32_t lead = options_.activation_lead * order_.slices();
  if (inputs_ready_ == all_ || lead == 0) return all_;
  return inputs_ready_ < lead ? 0 : inputs_ready_ - lead + 1;
}

std::optional<Work> StagePolicy::Next() const {
  if (running_) return std::nullopt;
  if (!options_.forward_only && backwards_begun_ < all_) {
    const Slice next = order_.At(backwards_begun_, Direction::kBackward);
    // All slices of the microbatch must have gone forward: later tokens attend to this slice, so
    // they contribute to its gradient.
    const uint32_t forwards_needed = (next.microbatch.value() + 1) * order_.slices();
    const bool forwards_allow = TraitsOf(options_.kind).forwards_first
                                    ? forwards_ended_ == all_
                                    : forwards_ended_ >= forwards_needed;
    if (forwards_allow && gradient_ready_[backwards_begun_]) return Work{Task::kBackward, next};
  }
  if (forwards_begun_ < all_ && HasRoom() && input_ready_[forwards_begun_]) {
    return Work{Task::kForward, order_.At(forwards_begun_, Direction::kForward)};
  }
  return std::nullopt;
}

bool StagePolicy::AwaitsInput() const {
  const uint32_t next = forwards_begun_;
  return next < all_ && !input_ready_[next] && HasRoom();
}

void StagePolicy::Begin(const Work& work) {
  LH_CHECK(Next() == work, "only what Next() gave may begin");
  running_ = work;
  ++(work.task == Task::kForward ? forwards_begun_ : backwards_begun_);
}

void StagePolicy::End(const Work& work) {
  LH_CHECK(running_ == work, "only what runs can end");
  running_.reset();
  ++(work.task == Task::kForward ? forwards_ended_ : backwards_ended_);
  // The last stage has no stage below that would take its outputs.
  if (options_.forward_only && chain::IsLast(options_.stage.value(), options_.stages)) {
    ++outputs_taken_;
  }
}

bool StagePolicy::Done() const {
  return forwards_ended_ == all_ && (options_.forward_only || backwards_ended_ == all_);
}

}  // namespace longhaul::schedule
