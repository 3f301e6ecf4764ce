#include "planner/auto_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "run/replicas/options.h"

namespace longhaul::coordinator {
namespace {

// The replicas' own planning is short. The step of a whole plan was seen to be shorter than that of
// its trial by up to 9 %, with 64 workers.
constexpr double kMostGainOverATrial = 0.1;

// What a plan says whose search ended before it came to a second value.
std::string NoOther(std::string_view keys, const AutoOutcome& chosen) {
  return fmt::format(" {}: {}; there was no time to look at others.", keys, chosen.value);
}

struct ReplicaCount {
  uint32_t replicas, stages;
};

std::vector<ReplicaCount> PossibleReplicas(const PlanRequest& request) {
  const auto most = static_cast<uint32_t>(request.workers.size());
  const uint32_t workers = std::min(request.candidates_for.value_or(most), most);
  std::vector<ReplicaCount> possible;
  for (uint32_t replicas = 1; replicas <= std::min(workers, replicas::kMostReplicas); ++replicas) {
    if (request.spec.train.microbatches % replicas != 0) continue;
    const std::optional<uint32_t> stages =
        StageCount(request.spec.WithChosenReplicas(replicas), workers);
    if (stages) possible.push_back({replicas, *stages});
  }
  return possible;
}

AutoSearch SearchForReplicas(const PlanRequest& request) {
  std::vector<ReplicaCount> possible = PossibleReplicas(request);
  AutoSearch search{.tolerance = kAlikeSteps,
                    .most_gain_over_trial = kMostGainOverATrial,
                    .limit = request.limit,
                    .none = "pipeline.replicas is auto, and no number of replicas can be"};
  for (const ReplicaCount& one : possible) {
    search.values.push_back(
        fmt::format("{} of {} stage{}", one.replicas, one.stages, one.stages == 1 ? "" : "s"));
  }
  search.request_of = [&request, possible](size_t value) {
    PlanRequest settled = request;
    settled.spec = request.spec.WithChosenReplicas(possible[value].replicas);
    settled.candidates_for = possible[value].replicas * possible[value].stages;
    return settled;
  };
  search.say = [microbatches = request.spec.train.microbatches, possible = std::move(possible)](
                   const std::vector<AutoOutcome>& tried, size_t chosen, Plan* plan) {
    const std::string others = OthersInWords(tried, chosen);
    plan->explanation +=
        tried.size() == 1 && possible.size() > 1
            ? NoOther("pipeline.replicas is auto", tried[chosen])
        : others.empty()
            ? fmt::format(
                  " pipeline.replicas is auto: {} is all that there are workers for, of "
                  "numbers that divide the {} microbatches of a step.",
                  tried[chosen].value, microbatches)
            : fmt::format(
                  " pipeline.replicas is auto: {} for the {} microbatches of a step, the "
                  "fewest within {:.0f}% of the fastest; {}.",
                  tried[chosen].value, microbatches, 100 * kAlikeSteps, others);
    for (size_t i = 0; i < tried.size(); ++i) {
      plan->prediction.replicas.push_back({.replicas = possible[i].replicas,
                                           .stages = possible[i].stages,
                                           .step_seconds = tried[i].step_seconds,
                                           .refused = tried[i].refused});
    }
  };
  return search;
}

AutoSearch SearchForSlices(const PlanRequest& request) {
  AutoSearch search{.tolerance = kAlikeSteps, .takes_more_memory = true, .limit = request.limit};
  std::vector<uint32_t> counts = {1};
  const uint32_t context = request.spec.model.context;
  // One stage waits for no other.
  for (uint32_t slices = 2;
       request.workers.size() > 1 && context % slices == 0 && context / slices >= kLeastSliceTokens;
       slices *= 2) {
    counts.push_back(slices);
  }
  for (const uint32_t slices : counts) {
    search.values.push_back(slices == 1 ? "microbatches whole" : fmt::format("{} slices", slices));
  }
  search.request_of = [&request, counts](size_t value) {
    PlanRequest settled = request;
    settled.spec.pipeline.slices = counts[value];
    return settled;
  };
  search.say = [counts](const std::vector<AutoOutcome>& tried, size_t chosen, Plan* plan) {
    const std::string others = OthersInWords(tried, chosen);
    plan->explanation +=
        tried.size() == 1 && counts.size() > 1 ? NoOther("pipeline.slices is auto", tried[chosen])
        : others.empty()
            ? fmt::format(
                  " pipeline.slices is auto: {}, because one stage waits for no other or "
                  "halves of the context would have fewer than {} tokens.",
                  tried[chosen].value, kLeastSliceTokens)
            : fmt::format(
                  " pipeline.slices is auto: {}, the fewest within {:.0f}% of the fastest "
                  "step; {}.",
                  tried[chosen].value, 100 * kAlikeSteps, others);
    for (size_t i = 0; i < tried.size(); ++i) {
      plan->prediction.slices.push_back({.slices = counts[i],
                                         .step_seconds = tried[i].step_seconds,
                                         .refused = tried[i].refused});
    }
  };
  return search;
}

uint32_t MostRanks(const std::vector<CandidateWorker>& workers) {
  size_t most = workers.empty() ? 1 : workers.front().devices.size();
  for (const CandidateWorker& worker : workers) most = std::min(most, worker.devices.size());
  return static_cast<uint32_t>(std::max<size_t>(most, 1));
}

// The same run with that group.
PlanRequest WithGroup(const PlanRequest& request, const GroupSpec& group) {
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
std::string GroupInWords(const GroupSpec& one, const GroupSpec& open) {
  const std::string ranks = fmt::format("{} rank{}", one.tensor, one.tensor == 1 ? "" : "s");
  if (!open.expert_auto || one.tensor == 1) return ranks;
  if (one.expert == 1) return ranks + " with all experts each";
  return fmt::format("{} with experts in {} parts", ranks, one.expert);
}

std::string_view OpenKeysOf(const GroupSpec& open) {
  if (!open.expert_auto) return "group.tensor is auto";
  return open.tensor_auto ? "group.tensor and group.expert are auto" : "group.expert is auto";
}

StatusOr<AutoSearch> SearchForGroup(const PlanRequest& request) {
  const GroupSpec& open = request.spec.group;
  if (!open.tensor_auto) LH_RETURN_IF_ERROR(CheckDevices(request.spec, request.workers));
  std::vector<GroupSpec> groups = config::GroupsLeftOpen(request.spec, MostRanks(request.workers));
  AutoSearch search{
      .limit = request.limit,
      .none = fmt::format("{}, and no number of ranks can share the stages", OpenKeysOf(open))};
  for (const GroupSpec& group : groups) search.values.push_back(GroupInWords(group, open));
  search.request_of = [&request, groups](size_t value) {
    return WithGroup(request, groups[value]);
  };
  search.say = [open, groups = std::move(groups)](const std::vector<AutoOutcome>& tried,
                                                  size_t chosen, Plan* plan) {
    const std::string others = OthersInWords(tried, chosen, /*with_reasons=*/false);
    plan->explanation +=
        tried.size() == 1 && groups.size() > 1 ? NoOther(OpenKeysOf(open), tried[chosen])
        : others.empty() ? fmt::format(" {}: {} a stage is all that the workers' devices{} allow.",
                                       OpenKeysOf(open), tried[chosen].value,
                                       open.expert_auto ? " and the number of experts" : "")
                         : fmt::format(" {}: {} a stage make the fastest step; {}.",
                                       OpenKeysOf(open), tried[chosen].value, others);
    for (size_t i = 0; i < tried.size(); ++i) {
      plan->prediction.ranks.push_back({.tensor = groups[i].tensor,
                                        .expert = groups[i].expert,
                                        .step_seconds = tried[i].step_seconds,
                                        .memory_bytes = tried[i].memory_bytes,
                                        .refused = tried[i].refused});
    }
  };
  return search;
}

}  // namespace

StatusOr<std::optional<AutoSearch>> SearchForOpenKey(const PlanRequest& request) {
  if (request.spec.replicas.count_auto) return SearchForReplicas(request);
  if (!request.spec.pipeline.slices) return SearchForSlices(request);
  if (!request.spec.group.is_auto()) return std::nullopt;
  LH_ASSIGN_OR_RETURN(AutoSearch search, SearchForGroup(request));
  return std::optional(std::move(search));
}

}  // namespace longhaul::coordinator
