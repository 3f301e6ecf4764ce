#include "run/schedule/simulator.h"

#include <algorithm>
#include <vector>

#include "run/plan/chain.h"
#include "run/schedule/one_step.h"
#include "run/schedule/policy.h"
#include "run/schedule/steps_in_a_row.h"

namespace longhaul::schedule {
namespace {

Status CheckCost(const PipelineCost& cost) {
  if (cost.stages.empty() || cost.AllSlices() == 0) {
    return absl::InvalidArgumentError(
        "a pipeline needs at least one stage, one microbatch and one slice of it");
  }
  if (!(cost.shared_efficiency > 0) || cost.shared_efficiency > 1) {
    return InvalidArgument("expected a shared efficiency above 0 and up to 1, got {}",
                           cost.shared_efficiency);
  }
  const auto stages = static_cast<uint32_t>(cost.stages.size());
  if (cost.boundaries.size() != chain::Boundaries(stages)) {
    return InvalidArgument("expected {} boundaries for {} stages, got {}",
                           chain::Boundaries(stages), stages, cost.boundaries.size());
  }
  uint32_t least_depth_above = cost.microbatches;
  for (uint32_t s = 0; s < stages; ++s) {
    const StageCost& stage = cost.stages[s];
    if (stage.activation_lead > least_depth_above) {
      return InvalidArgument(
          "an activation lead of {} at stage {} needs as many microbatches in flight above it, "
          "and a stage there has {}",
          stage.activation_lead, s, least_depth_above);
    }
    least_depth_above =
        std::min(least_depth_above, EffectiveDepth({.kind = cost.schedule,
                                                    .stage = StageIndex(s),
                                                    .stages = stages,
                                                    .microbatches = cost.microbatches,
                                                    .depth = stage.depth}));
    if (stage.forward < absl::ZeroDuration() || stage.backward < absl::ZeroDuration() ||
        std::min({stage.optimizer, stage.reduce_last, stage.gather}) < absl::ZeroDuration() ||
        stage.reduce < stage.reduce_last || !(stage.egress_bytes_per_second > 0) ||
        !(stage.ingress_bytes_per_second > 0) || stage.depth == 0) {
      return absl::InvalidArgumentError(
          "a stage needs times that are not negative, the last of which is a part of the whole, "
          "rates "
          "above 0 and a depth of 1 or more");
    }
  }
  if (cost.tied && TraitsOf(cost.schedule).overlaps_steps) {
    return absl::InvalidArgumentError("steps that overlap train no tied matrix");
  }
  if (cost.tied && stages == 1) {
    return absl::InvalidArgumentError("one stage holds a tied matrix alone");
  }
  std::vector<BoundaryCost> all = cost.boundaries;
  if (cost.tied) all.push_back(*cost.tied);
  for (const BoundaryCost& boundary : all) {
    for (const FlowCost* flow : {&boundary.forward, &boundary.backward}) {
      if (!(flow->bytes >= 0) || !(flow->bytes_per_second > 0) ||
          std::min({flow->latency, flow->encode, flow->decode}) < absl::ZeroDuration()) {
        return absl::InvalidArgumentError(
            "a boundary needs bytes and times that are not negative and rates above 0");
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<Simulation> Simulate(const PipelineCost& cost, const std::stop_token& stop) {
  LH_RETURN_IF_ERROR(CheckCost(cost));
  return TraitsOf(cost.schedule).overlaps_steps ? SimulateInARow(cost, stop)
                                                : SimulateOneStep(cost, stop);
}

}  // namespace longhaul::schedule
