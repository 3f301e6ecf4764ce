#include "coordinator/planner/replica_count.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/units.h"
#include "run/replicas/options.h"

namespace longhaul::coordinator {
namespace {

// A whole plan may have a step that is shorter than its trial's by this share. What was seen is up
// to 9 %, with 64 workers.
constexpr double kMostGainOverATrial = 0.1;

// A number of replicas, and what was made to compare it with others.
struct Tried {
  ReplicasPrediction is;  // of the plan where there is one, else of the trial
  std::optional<Plan> plan;
};

// The same run with so many replicas.
PlanRequest With(const PlanRequest& request, const ReplicasPrediction& one) {
  PlanRequest settled = request;
  settled.spec = request.spec.WithChosenReplicas(one.replicas);
  settled.candidates_for = one.replicas * one.stages;
  return settled;
}

std::vector<Tried> Possible(const PlanRequest& request) {
  const auto most = static_cast<uint32_t>(request.workers.size());
  const uint32_t workers = std::min(request.candidates_for.value_or(most), most);
  std::vector<Tried> possible;
  for (uint32_t replicas = 1; replicas <= std::min(workers, replicas::kMostReplicas); ++replicas) {
    if (request.spec.train.microbatches % replicas != 0) continue;
    const std::optional<uint32_t> stages =
        StageCount(request.spec.WithChosenReplicas(replicas), workers);
    if (stages) possible.push_back({.is = {.replicas = replicas, .stages = *stages}, .plan = {}});
  }
  return possible;
}

// Gives `one` a plan, or the step of a trial; or the reason why it cannot be.
Status Try(const PlanRequest& request, Effort effort, const std::stop_token& stop, Tried* one) {
  PlanRequest settled = With(request, one->is);
  settled.effort = effort;
  if (effort == Effort::kTrial) settled.with_codec_table = false;
  StatusOr<Plan> plan = MakePlan(settled, stop);
  if (absl::IsFailedPrecondition(plan.status())) {
    one->is.refused = Message(plan.status());
    return absl::OkStatus();
  }
  LH_RETURN_IF_ERROR(plan.status());
  one->is.step_seconds = plan->prediction.step_seconds;
  if (effort == Effort::kWhole) one->plan = *std::move(plan);
  return absl::OkStatus();
}

double WithinTolerance(const Tried& fastest) {
  return fastest.is.step_seconds * (1 + kReplicasTolerance);
}

// The fastest of the plans; null: there is none.
const Tried* FastestOf(const std::vector<Tried>& tried) {
  const Tried* fastest = nullptr;
  for (const Tried& one : tried) {
    if (!one.plan) continue;
    if (fastest == nullptr || one.is.step_seconds < fastest->is.step_seconds) fastest = &one;
  }
  return fastest;
}

// Of those without a plan that may yet be chosen, the one whose trial was fastest; null: none.
Tried* NextToPlan(std::vector<Tried>* tried) {
  const Tried* const fastest = FastestOf(*tried);
  Tried* next = nullptr;
  for (Tried& one : *tried) {
    if (!one.is.refused.empty() || one.plan) continue;
    const double least = one.is.step_seconds * (1 - kMostGainOverATrial);
    const bool may_win = fastest == nullptr || least <= WithinTolerance(*fastest);
    if (may_win && (next == nullptr || one.is.step_seconds < next->is.step_seconds)) next = &one;
  }
  return next;
}

// The fewest that are nearly as fast as the fastest.
size_t BestOf(const std::vector<Tried>& tried) {
  const double most = WithinTolerance(*FastestOf(tried));
  const auto best = std::ranges::find_if(
      tried, [&](const Tried& one) { return one.plan && one.is.step_seconds <= most; });
  return static_cast<size_t>(best - tried.begin());
}

std::string Words(const ReplicasPrediction& one) {
  return fmt::format("{} of {} stage{}", one.replicas, one.stages, one.stages == 1 ? "" : "s");
}

std::string Choice(const std::vector<Tried>& tried, size_t chosen, uint32_t microbatches) {
  std::string others;
  for (size_t i = 0; i < tried.size(); ++i) {
    if (i == chosen) continue;
    const ReplicasPrediction& one = tried[i].is;
    others += fmt::format(
        "{}{} {}", others.empty() ? "" : ", ", Words(one),
        one.refused.empty() ? fmt::format("would take {}",
                                          longhaul::FormatDuration(absl::Seconds(one.step_seconds)))
                            : fmt::format("cannot be ({})", one.refused));
  }
  if (others.empty()) {
    return fmt::format(
        " pipeline.replicas is auto: {} is all that there are workers for, of numbers that divide "
        "the {} microbatches of a step.",
        Words(tried[chosen].is), microbatches);
  }
  return fmt::format(
      " pipeline.replicas is auto: {} for the {} microbatches of a step, the fewest within {:.0f}% "
      "of the fastest; {}.",
      Words(tried[chosen].is), microbatches, 100 * kReplicasTolerance, others);
}

}  // namespace

StatusOr<Plan> MakePlanOfBestReplicas(const PlanRequest& request, const std::stop_token& stop) {
  std::vector<Tried> tried = Possible(request);
  for (Tried& one : tried) {
    if (tried.size() == 1) break;  // the plan says what is wrong with it
    LH_RETURN_IF_ERROR(Try(request, Effort::kTrial, stop, &one));
  }
  while (Tried* const next = NextToPlan(&tried)) {
    LH_RETURN_IF_ERROR(Try(request, Effort::kWhole, stop, next));
  }
  if (FastestOf(tried) == nullptr) {
    std::string reasons;
    for (const Tried& one : tried) {
      reasons +=
          fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", Words(one.is), one.is.refused);
    }
    return absl::FailedPreconditionError(
        fmt::format("pipeline.replicas is auto, and no number of replicas can be: {}",
                    reasons.empty() ? "there are too few workers" : reasons));
  }
  const size_t best = BestOf(tried);
  Plan plan = *std::move(tried[best].plan);
  plan.explanation += Choice(tried, best, request.spec.train.microbatches);
  for (const Tried& one : tried) plan.prediction.replicas.push_back(one.is);
  return plan;
}

}  // namespace longhaul::coordinator
