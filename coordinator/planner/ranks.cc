#include "coordinator/planner/ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/units.h"
#include "run/file/group_fields.h"

namespace longhaul::coordinator {
namespace {

uint32_t MostRanks(const std::vector<CandidateWorker>& workers) {
  size_t most = workers.empty() ? 1 : workers.front().devices.size();
  for (const CandidateWorker& worker : workers) most = std::min(most, worker.devices.size());
  return static_cast<uint32_t>(std::max<size_t>(most, 1));
}

// The same run with that group.
PlanRequest With(const PlanRequest& request, const GroupSpec& group) {
  PlanRequest settled = request;
  settled.spec.group = group;
  for (CandidateWorker& worker : settled.workers) {
    const auto& memory = worker.device_memory_bytes;
    for (size_t i = 0; i < std::min<size_t>(group.tensor, memory.size()); ++i) {
      worker.memory_bytes = std::min(worker.memory_bytes, memory[i]);
    }
  }
  return settled;
}

// "4 ranks"; where the parts of experts are open, too, "4 ranks with experts in 2 parts".
std::string Words(const RanksPrediction& one, const GroupSpec& open) {
  const std::string ranks = fmt::format("{} rank{}", one.tensor, one.tensor == 1 ? "" : "s");
  if (!open.expert_auto || one.tensor == 1) return ranks;
  if (one.expert == 1) return ranks + " with all experts each";
  return fmt::format("{} with experts in {} parts", ranks, one.expert);
}

std::string_view AutoKeys(const GroupSpec& open) {
  if (!open.expert_auto) return "group.tensor is auto";
  return open.tensor_auto ? "group.tensor and group.expert are auto" : "group.expert is auto";
}

// What the plan chose, and what others would have given.
std::string Choice(const std::vector<RanksPrediction>& tried, size_t chosen,
                   const GroupSpec& open) {
  std::string others;
  for (size_t i = 0; i < tried.size(); ++i) {
    if (i == chosen) continue;
    const RanksPrediction& one = tried[i];
    others += others.empty() ? "" : ", ";
    others += one.refused.empty()
                  ? fmt::format("{} would take {}", Words(one, open),
                                longhaul::FormatDuration(absl::Seconds(one.step_seconds)))
                  : fmt::format("{} cannot", Words(one, open));
  }
  const std::string what = Words(tried[chosen], open);
  if (others.empty()) {
    return fmt::format(" {}: {} a stage is all that the workers' devices{} allow.", AutoKeys(open),
                       what, open.expert_auto ? " and the number of experts" : "");
  }
  return fmt::format(" {}: {} a stage make the fastest step; {}.", AutoKeys(open), what, others);
}

}  // namespace

StatusOr<Plan> MakePlanOfBestGroup(const PlanRequest& request, const std::stop_token& stop) {
  const GroupSpec& open = request.spec.group;
  if (!open.tensor_auto) LH_RETURN_IF_ERROR(CheckDevices(request.spec, request.workers));
  const std::vector<GroupSpec> groups =
      config::GroupsLeftOpen(request.spec, MostRanks(request.workers));
  std::vector<RanksPrediction> tried;
  std::optional<size_t> best;
  std::string reasons;
  for (const GroupSpec& group : groups) {
    PlanRequest trial = With(request, group);
    trial.with_codec_table = false;
    const StatusOr<Plan> plan = MakePlan(trial, stop);
    RanksPrediction& one = tried.emplace_back();
    one.tensor = group.tensor;
    one.expert = group.expert;
    if (!plan.ok()) {
      if (!absl::IsFailedPrecondition(plan.status())) return plan.status();
      one.refused = Message(plan.status());
      reasons +=
          fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", Words(one, open), one.refused);
      continue;
    }
    one.step_seconds = plan->prediction.step_seconds;
    for (const Cell& cell : plan->assignment.cells) {
      one.memory_bytes = std::max(one.memory_bytes, cell.memory_bytes);
    }
    if (!best || one.step_seconds < tried[*best].step_seconds) best = tried.size() - 1;
  }
  if (!best) {
    return absl::FailedPreconditionError(fmt::format(
        "{}, and no number of ranks can share the stages: {}", AutoKeys(open), reasons));
  }
  LH_ASSIGN_OR_RETURN(Plan plan, MakePlan(With(request, groups[*best]), stop));
  plan.explanation += Choice(tried, *best, open);
  plan.prediction.ranks = std::move(tried);
  return plan;
}

}  // namespace longhaul::coordinator
