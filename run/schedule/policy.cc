#include "run/schedule/policy.h"

#include <algorithm>

#include "base/check.h"
#include "run/plan/chain.h"

namespace longhaul::schedule {

uint32_t EffectiveDepth(const PolicyOptions& options) {
  if (options.forward_only) {
    return std::min(options.microbatches, std::max(options.depth, kLeastOutputs));
  }
  switch (options.kind) {
    case ScheduleKind::kGpipe:
      return options.microbatches;
    case ScheduleKind::kOneFOneB:
      return std::min(options.depth, chain::StagesFrom(options.stage.value(), options.stages));
    case ScheduleKind::kLinkAware:
      return options.depth;
  }
  return options.depth;
}

StagePolicy::StagePolicy(const PolicyOptions& options)
    : options_(options),
      depth_(EffectiveDepth(options)),
      input_ready_(options.microbatches, chain::IsFirst(options.stage.value())),
      gradient_ready_(options.microbatches, chain::IsLast(options.stage.value(), options.stages)),
      inputs_ready_(chain::IsFirst(options.stage.value()) ? options.microbatches : 0) {
  LH_CHECK(options.microbatches > 0 && depth_ > 0, "a step needs microbatches and depth");
  LH_CHECK(options.stage.value() < options.stages, "stage outside the pipeline");
}

void StagePolicy::InputReady(Microbatch microbatch) {
  LH_CHECK(microbatch.value() < options_.microbatches, "no such microbatch");
  LH_CHECK(!input_ready_[microbatch.value()], "an input became ready twice");
  input_ready_[microbatch.value()] = true;
  ++inputs_ready_;
}

void StagePolicy::GradientReady(Microbatch microbatch) {
  LH_CHECK(!options_.forward_only, "no gradients in a forward-only step");
  LH_CHECK(microbatch.value() < forwards_begun_, "a gradient before its forward");
  LH_CHECK(!gradient_ready_[microbatch.value()], "a gradient became ready twice");
  gradient_ready_[microbatch.value()] = true;
}

void StagePolicy::OutputTaken(Microbatch microbatch) {
  LH_CHECK(MayBeTaken(microbatch), "output {} was taken, and there are {} of which {} were taken",
           microbatch.value(), forwards_ended_, outputs_taken_);
  ++outputs_taken_;
}

bool StagePolicy::MayBeTaken(Microbatch microbatch) const {
  return options_.forward_only && microbatch.value() == outputs_taken_ &&
         outputs_taken_ < forwards_ended_;
}

uint32_t StagePolicy::GradientsThatMayLeave() const {
  if (inputs_ready_ == options_.microbatches || options_.activation_lead == 0) {
    return options_.microbatches;
  }
  return inputs_ready_ < options_.activation_lead ? 0
                                                  : inputs_ready_ - options_.activation_lead + 1;
}

std::optional<Work> StagePolicy::Next() const {
  if (running_) return std::nullopt;
  const uint32_t all = options_.microbatches;
  if (!options_.forward_only && backwards_begun_ < all) {
    const bool forwards_allow = options_.kind == ScheduleKind::kGpipe
                                    ? forwards_ended_ == all
                                    : forwards_ended_ > backwards_begun_;
    if (forwards_allow && gradient_ready_[backwards_begun_]) {
      return Work{Task::kBackward, Microbatch(backwards_begun_)};
    }
  }
  const bool room = in_flight() < depth_;
  if (forwards_begun_ < all && room && input_ready_[forwards_begun_]) {
    return Work{Task::kForward, Microbatch(forwards_begun_)};
  }
  return std::nullopt;
}

bool StagePolicy::AwaitsInput() const {
  const uint32_t next = forwards_begun_;
  return next < options_.microbatches && !input_ready_[next] && in_flight() < depth_;
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
  // Nobody takes what the last stage makes.
  if (options_.forward_only && chain::IsLast(options_.stage.value(), options_.stages)) {
    ++outputs_taken_;
  }
}

bool StagePolicy::Done() const {
  return forwards_ended_ == options_.microbatches &&
         (options_.forward_only || backwards_ended_ == options_.microbatches);
}

}  // namespace longhaul::schedule
