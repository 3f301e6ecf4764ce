#include "coordinator/planner/ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/units.h"

namespace longhaul::coordinator {
namespace {

uint32_t MostRanks(const std::vector<CandidateWorker>& workers) {
  size_t most = workers.empty() ? 1 : workers.front().devices.size();
  for (const CandidateWorker& worker : workers) most = std::min(most, worker.devices.size());
  return static_cast<uint32_t>(std::max<size_t>(most, 1));
}

// The same run with that many ranks.
PlanRequest With(const PlanRequest& request, uint32_t ranks) {
  PlanRequest settled = request;
  settled.spec.group = request.spec.group.Settled(ranks);
  for (CandidateWorker& worker : settled.workers) {
    const auto& memory = worker.device_memory_bytes;
    for (size_t i = 0; i < std::min<size_t>(ranks, memory.size()); ++i) {
      worker.memory_bytes = std::min(worker.memory_bytes, memory[i]);
    }
  }
  return settled;
}

std::string Ranks(uint32_t number) {
  return fmt::format("{} rank{}", number, number == 1 ? "" : "s");
}

// What the plan chose, and what others would have given.
std::string Choice(const std::vector<RanksPrediction>& tried, uint32_t chosen) {
  std::string others;
  for (const RanksPrediction& one : tried) {
    if (one.tensor == chosen) continue;
    others += others.empty() ? "" : ", ";
    others += one.refused.empty()
                  ? fmt::format("{} would take {}", Ranks(one.tensor),
                                longhaul::FormatDuration(absl::Seconds(one.step_seconds)))
                  : fmt::format("{} cannot", Ranks(one.tensor));
  }
  return fmt::format(
      " group.tensor is auto: {} a stage {}{}.", Ranks(chosen),
      others.empty() ? "is all that the workers' devices allow" : "make the fastest step; ",
      others);
}

}  // namespace

StatusOr<Plan> MakePlanOfBestRanks(const PlanRequest& request, const std::stop_token& stop) {
  std::vector<RanksPrediction> tried;
  std::optional<uint32_t> best;
  std::string reasons;
  for (uint32_t ranks = 1; ranks <= MostRanks(request.workers); ++ranks) {
    PlanRequest trial = With(request, ranks);
    trial.with_codec_table = false;
    const StatusOr<Plan> plan = MakePlan(trial, stop);
    RanksPrediction& one = tried.emplace_back();
    one.tensor = ranks;
    if (!plan.ok()) {
      if (!absl::IsFailedPrecondition(plan.status())) return plan.status();
      one.refused = Message(plan.status());
      reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", Ranks(ranks), one.refused);
      continue;
    }
    one.step_seconds = plan->prediction.step_seconds;
    for (const Cell& cell : plan->assignment.cells) {
      one.memory_bytes = std::max(one.memory_bytes, cell.memory_bytes);
    }
    if (!best || one.step_seconds < tried[*best - 1].step_seconds) best = ranks;
  }
  if (!best) {
    return absl::FailedPreconditionError(fmt::format(
        "group.tensor is auto, and no number of ranks can share the stages: {}", reasons));
  }
  LH_ASSIGN_OR_RETURN(Plan plan, MakePlan(With(request, *best), stop));
  plan.explanation += Choice(tried, *best);
  plan.prediction.ranks = std::move(tried);
  return plan;
}

}  // namespace longhaul::coordinator
