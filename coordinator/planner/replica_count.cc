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

// The search for workers is this much shorter where it only compares numbers of replicas.
constexpr double kShareOfATrial = 0.125;

// The same run with so many replicas.
PlanRequest With(const PlanRequest& request, const ReplicasPrediction& one) {
  PlanRequest settled = request;
  settled.spec = request.spec.WithChosenReplicas(one.replicas);
  settled.candidates_for = one.replicas * one.stages;
  return settled;
}

std::vector<ReplicasPrediction> Possible(const PlanRequest& request) {
  const auto most = static_cast<uint32_t>(request.workers.size());
  const uint32_t workers = std::min(request.candidates_for.value_or(most), most);
  std::vector<ReplicasPrediction> possible;
  for (uint32_t replicas = 1; replicas <= std::min(workers, replicas::kMostReplicas); ++replicas) {
    if (request.spec.train.microbatches % replicas != 0) continue;
    const std::optional<uint32_t> stages =
        StageCount(request.spec.WithChosenReplicas(replicas), workers);
    if (stages) possible.push_back({.replicas = replicas, .stages = *stages});
  }
  return possible;
}

// Of the plan for the workers that a short search finds.
StatusOr<double> StepOf(const PlanRequest& request, const std::stop_token& stop) {
  PlanRequest trial = request;
  trial.with_codec_table = false;
  trial.search_share = kShareOfATrial;
  LH_ASSIGN_OR_RETURN(const Plan plan, MakePlan(trial, stop));
  return plan.prediction.step_seconds;
}

// Of those that were not refused, the fewest that are nearly as fast as the fastest.
std::optional<size_t> BestOf(const std::vector<ReplicasPrediction>& tried) {
  const auto fastest = std::ranges::min_element(tried, {}, [](const ReplicasPrediction& one) {
    return std::pair(!one.refused.empty(), one.step_seconds);
  });
  if (fastest == tried.end() || !fastest->refused.empty()) return std::nullopt;
  const auto best = std::ranges::find_if(tried, [&](const ReplicasPrediction& one) {
    return one.refused.empty() &&
           one.step_seconds <= fastest->step_seconds * (1 + kReplicasTolerance);
  });
  return static_cast<size_t>(best - tried.begin());
}

std::string Words(const ReplicasPrediction& one) {
  return fmt::format("{} of {} stage{}", one.replicas, one.stages, one.stages == 1 ? "" : "s");
}

std::string Choice(const std::vector<ReplicasPrediction>& tried, size_t chosen,
                   uint32_t microbatches) {
  std::string others;
  for (size_t i = 0; i < tried.size(); ++i) {
    if (i == chosen) continue;
    const ReplicasPrediction& one = tried[i];
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
        Words(tried[chosen]), microbatches);
  }
  return fmt::format(
      " pipeline.replicas is auto: {} for the {} microbatches of a step, the fewest within {:.0f}% "
      "of the fastest; {}.",
      Words(tried[chosen]), microbatches, 100 * kReplicasTolerance, others);
}

}  // namespace

StatusOr<Plan> MakePlanOfBestReplicas(const PlanRequest& request, const std::stop_token& stop) {
  std::vector<ReplicasPrediction> tried = Possible(request);
  for (ReplicasPrediction& one : tried) {
    if (tried.size() == 1) break;  // the plan says what is wrong with it
    const StatusOr<double> step = StepOf(With(request, one), stop);
    if (step.ok()) {
      one.step_seconds = *step;
    } else if (absl::IsFailedPrecondition(step.status())) {
      one.refused = Message(step.status());
    } else {
      return step.status();
    }
  }
  while (const std::optional<size_t> best = BestOf(tried)) {
    StatusOr<Plan> plan = MakePlan(With(request, tried[*best]), stop);
    if (absl::IsFailedPrecondition(plan.status())) {  // which the search did not see
      tried[*best].refused = Message(plan.status());
      continue;
    }
    LH_RETURN_IF_ERROR(plan.status());
    tried[*best].step_seconds = plan->prediction.step_seconds;
    plan->explanation += Choice(tried, *best, request.spec.train.microbatches);
    plan->prediction.replicas = std::move(tried);
    return plan;
  }
  std::string reasons;
  for (const ReplicasPrediction& one : tried) {
    reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", Words(one), one.refused);
  }
  return absl::FailedPreconditionError(
      fmt::format("pipeline.replicas is auto, and no number of replicas can be: {}",
                  reasons.empty() ? "there are too few workers" : reasons));
}

}  // namespace longhaul::coordinator
