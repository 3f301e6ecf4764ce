// What takes too long for a tick is computed beside it: asked for, given up, and answered. Answers
// to what nobody waits for any more are dropped.
#include <fmt/format.h>

#include <utility>

#include "coordinator/planner/replicas.h"
#include "coordinator/state/core.h"

namespace longhaul::coordinator {

void Core::Compute(Draft& draft) {
  draft.computation = ComputationId(next_computation_++);
  out_.commands.emplace_back(command::ComputePlan{*draft.computation, PlanRequestOf(draft)});
}

void Core::Compute(Run& run, const Seen& seen) {
  run.tuning.computation = ComputationId(next_computation_++);
  out_.commands.emplace_back(command::ComputeRetune{
      *run.tuning.computation, run.record.spec.WithReplicas(ReplicasOf(run.assignment())),
      *run.record.plan, seen});
}

void Core::Cancel(std::optional<ComputationId>& computation) {
  if (!computation) return;
  out_.commands.emplace_back(command::CancelComputation{*computation});
  computation.reset();
}

void Core::On(event::PlanComputed& computed) {
  const auto is_it = [&](const Draft& draft) { return draft.computation == computed.id; };
  const auto job = std::ranges::find_if(jobs_, [&](auto& one) { return is_it(one.second.draft); });
  const auto run = std::ranges::find_if(
      runs_, [&](auto& one) { return one.second.draft && is_it(*one.second.draft); });
  if (job == jobs_.end() && run == runs_.end()) return;
  const RunId id = job != jobs_.end() ? job->first : run->first;
  Draft& draft = *FindDraft(id);
  draft.computation.reset();
  if (!computed.plan.ok()) {
    FailDraft(id, std::string(Message(computed.plan.status())));
    return;
  }
  draft.plan = *std::move(computed.plan);
  AdvanceDraft(id);
}

void Core::On(event::RetuneComputed& computed) {
  const auto found = std::ranges::find_if(
      runs_, [&](auto& one) { return one.second.tuning.computation == computed.id; });
  if (found == runs_.end()) return;
  Run& run = found->second;
  run.tuning.computation.reset();
  run.tuning.not_before = now_ + run.tuning.pause;  // however long the search took
  if (!computed.plan.ok()) {
    RetuneFailed(run, computed.plan.status());
  } else if (*computed.plan) {
    AdoptRetune(run, **std::move(computed.plan));
  }
}

}  // namespace longhaul::coordinator
