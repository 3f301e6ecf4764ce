#include "run/schedule/steps_in_a_row.h"

#include <algorithm>

#include "run/schedule/bound.h"
#include "run/schedule/one_step.h"

namespace longhaul::schedule {
namespace {

// `steps` steps that follow each other without a gap, as one long step. A stage's optimizer runs
// beside nothing else of that stage, so its time is spread over the backwards.
PipelineCost InARow(const PipelineCost& cost, uint32_t steps) {
  PipelineCost many = cost;
  many.schedule = TraitsOf(cost.schedule).without_overlap;
  many.microbatches = steps * cost.microbatches;
  for (StageCost& stage : many.stages) {
    stage.backward += stage.optimizer / cost.AllSlices();
    stage.optimizer = absl::ZeroDuration();
  }
  return many;
}

// The values of one counted step: the difference of two simulations, one of which has kCountedSteps
// steps more.
class CountedStep {
 public:
  CountedStep(const Simulation& fewer, const Simulation& many, absl::Duration floor)
      : fewer_(fewer.step),
        many_(many.step),
        mean_(Of(fewer.step, many.step)),
        step_(std::max(mean_, floor)) {}

  absl::Duration step() const { return step_; }
  // By how much the counted steps are too short: the two runs did not fill the pipeline quite
  // alike.
  absl::Duration missing() const { return step_ - mean_; }
  static absl::Duration Of(absl::Duration fewer, absl::Duration many) {
    return (many - fewer) / kCountedSteps;
  }
  double Share(double fewer, double many) const {
    return absl::FDivDuration(many * many_ - fewer * fewer_, kCountedSteps * step_);
  }
  DirectionUse Of(const DirectionUse& fewer, const DirectionUse& many) const {
    return {.busy_share = Share(fewer.busy_share, many.busy_share),
            .rate_share = Share(fewer.rate_share, many.rate_share)};
  }
  StageUse Of(const StageCost& cost, const StageUse& fewer, const StageUse& many) const {
    const StageTime &less = fewer.time, &more = many.time;
    return {.time = {.compute = Of(less.compute, more.compute) - cost.optimizer,
                     .codec = Of(less.codec, more.codec),
                     .wait_above = Of(less.wait_above, more.wait_above) + missing(),
                     .wait_below = Of(less.wait_below, more.wait_below),
                     .optimizer = cost.optimizer},
            .egress_share = Share(fewer.egress_share, many.egress_share),
            .ingress_share = Share(fewer.ingress_share, many.ingress_share)};
  }

 private:
  const absl::Duration fewer_, many_, mean_, step_;
};

}  // namespace

StatusOr<Simulation> SimulateInARow(const PipelineCost& cost, const std::stop_token& stop) {
  const PipelineCost first = InARow(cost, kStepsToFill),
                     all = InARow(cost, kStepsToFill + kCountedSteps);
  LH_ASSIGN_OR_RETURN(const Simulation fewer, SimulateOneStep(first, stop));
  LH_ASSIGN_OR_RETURN(const Simulation many, SimulateOneStep(all, stop));
  const LowerBound bound = ComputeLowerBound(cost);
  const CountedStep counted(fewer, many, bound.step);
  Simulation result{.step = counted.step(),
                    .lower_bound = bound.step,
                    .bottleneck = bound.bottleneck,
                    .busiest = FindBusiestResource(cost)};
  for (size_t s = 0; s < cost.stages.size(); ++s) {
    result.stages.push_back(counted.Of(cost.stages[s], fewer.stages[s], many.stages[s]));
  }
  for (size_t b = 0; b < cost.boundaries.size(); ++b) {
    const BoundaryUse &less = fewer.boundaries[b], &more = many.boundaries[b];
    result.boundaries.push_back(
        {counted.Of(less.forward, more.forward), counted.Of(less.backward, more.backward)});
  }
  return result;
}

}  // namespace longhaul::schedule
