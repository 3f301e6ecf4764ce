#include "coordinator/planner/slices.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/units.h"

namespace longhaul::coordinator {
namespace {

PlanRequest With(const PlanRequest& request, uint32_t slices) {
  PlanRequest settled = request;
  settled.spec.pipeline.slices = slices;
  return settled;
}

std::string Words(uint32_t slices) {
  return slices == 1 ? "microbatches whole" : fmt::format("{} slices", slices);
}

std::string Choice(const std::vector<SlicesPrediction>& tried, uint32_t chosen) {
  std::string others;
  for (const SlicesPrediction& one : tried) {
    if (one.slices == chosen) continue;
    others += fmt::format(
        "{}{} {}", others.empty() ? "" : ", ", Words(one.slices),
        one.refused.empty() ? fmt::format("would take {}",
                                          longhaul::FormatDuration(absl::Seconds(one.step_seconds)))
                            : fmt::format("cannot be ({})", one.refused));
  }
  if (others.empty()) {
    return fmt::format(
        " pipeline.slices is auto: {}, because one stage waits for no other or halves of the "
        "context would have fewer than {} tokens.",
        Words(chosen), kLeastSliceTokens);
  }
  return fmt::format(
      " pipeline.slices is auto: {}, the fewest within {:.0f}% of the fastest step; {}.",
      Words(chosen), 100 * kSlicesTolerance, others);
}

}  // namespace

StatusOr<Plan> MakePlanOfBestSlices(const PlanRequest& request, const std::stop_token& stop) {
  std::vector<SlicesPrediction> tried;
  const uint32_t context = request.spec.model.context;
  for (uint32_t slices = 1;
       slices == 1 || (context % slices == 0 && context / slices >= kLeastSliceTokens);
       slices *= 2) {
    PlanRequest trial = With(request, slices);
    trial.with_codec_table = false;
    const StatusOr<Plan> plan = MakePlan(trial, stop);
    SlicesPrediction one{.slices = slices};
    if (plan.ok()) {
      one.step_seconds = plan->prediction.step_seconds;
    } else if (slices > 1 && absl::IsFailedPrecondition(plan.status())) {
      one.refused = Message(plan.status());
    } else {
      return plan.status();
    }
    tried.push_back(std::move(one));
    // More slices take more memory, too.
    if (request.workers.size() == 1 || !tried.back().refused.empty()) break;
  }
  double best = tried.front().step_seconds;
  for (const SlicesPrediction& one : tried) {
    if (one.refused.empty()) best = std::min(best, one.step_seconds);
  }
  const auto chosen = std::ranges::find_if(tried, [best](const SlicesPrediction& one) {
    return one.refused.empty() && one.step_seconds <= best * (1 + kSlicesTolerance);
  });
  const uint32_t slices = chosen->slices;
  LH_ASSIGN_OR_RETURN(Plan plan, MakePlan(With(request, slices), stop));
  plan.explanation += Choice(tried, slices);
  plan.prediction.slices = std::move(tried);
  return plan;
}

}  // namespace longhaul::coordinator
