#include "coordinator/state/workers/spares.h"

#include <fmt/format.h>

#include <algorithm>

#include "coordinator/state/layer_times.h"
#include "coordinator/state/ledger/replica_counts.h"
#include "planner/replicas.h"
#include "planner/resize.h"

namespace longhaul::coordinator {

bool Spares::IsSpareOf(const Worker& worker, const Run& run) const {
  if (worker.held != run.record.id || worker.leaves_at) return false;
  // A run that is planned has reserved candidates alone.
  if (run.record.state == RunState::kPlanning) return false;
  return std::ranges::none_of(run.stages, [&](const auto& one) { return one.worker == worker.id; });
}

std::vector<Worker*> Spares::SparesOf(const Run& run) const {
  std::vector<Worker*> spares;
  for (Worker* worker : ledger_.connected()) {
    if (IsSpareOf(*worker, run)) spares.push_back(worker);
  }
  return spares;
}

void Spares::Advance() {
  for (Run* run : ledger_.Active()) {
    const RunState state = run->record.state;
    const size_t wanted = SparesWanted(*run);
    if (wanted == 0 || (!HasStages(state) && state != RunState::kRecovering)) continue;
    size_t have = SparesOf(*run).size();
    for (Worker* worker : ledger_.connected()) {
      if (have >= wanted) break;
      if (!health_.MayTake(*worker) || !links_.HasDevicesFor(run->record.spec, *worker)) continue;
      // A stage of this very run that has not come back yet.
      const bool is_stage = std::ranges::any_of(
          run->stages, [&](const StageRecord& stage) { return stage.worker == worker->id; });
      if (is_stage) continue;
      worker->held = run->record.id;
      ++have;
      ledger_.Changed(*run);
      ledger_.Log(run, "worker", "worker {} is a spare of this run", ledger_.Label(*worker));
    }
    AskForTimes(*run);
  }
}

// Also asks spares that were reserved before: one that lost its stage to a smaller number of
// replicas stays reserved, and a coordinator that started anew has forgotten all times.
void Spares::AskForTimes(const Run& run) {
  if (!HasStages(run.record.state)) return;  // before that nobody knows who has a stage
  for (Worker* spare : SparesOf(run)) {
    if (spare->layers || spare->times_for == run.record.id) continue;
    spare->times_for = run.record.id;
    orders_.SendMeasure(*spare, run.record.id, run.record.epoch, run.record.spec);
  }
}

void Spares::ReleaseBeyond(const Run& run, size_t wanted) {
  std::vector<Worker*> spares = SparesOf(run);
  for (size_t i = wanted; i < spares.size(); ++i) spares[i]->held.reset();
}

void Spares::OnTimes(Worker& worker, const Run& run, const v1::LayerTimes& times) {
  if (!run.record.spec.replay && IsPlausible(times))
    worker.layers = {run.record.spec, times, ledger_.now()};
}

size_t Spares::SparesWanted(const Run& run) const {
  size_t wanted = run.record.spec.recovery.spares;
  if (run.record.plan) wanted += size_t{ReplicasMissing(run)} * StagesOfReplica(run.assignment());
  for (const StageRecord& stage : run.stages) {
    const Worker* worker = ledger_.FindWorker(stage.worker);
    if (worker != nullptr && worker->leaves_at && worker->incarnation == stage.incarnation)
      ++wanted;
  }
  return wanted;
}

std::string Spares::WhyFewerReplicas(const Run& run) const {
  const uint32_t missing = ReplicasMissing(run);
  if (missing == 0) return "";
  const size_t stages = StagesOfReplica(run.assignment());
  const size_t have = SparesOf(run).size();
  return fmt::format("{} of {} train; another one needs {} free workers, {} {} reserved",
                     ReplicasOf(run.assignment()), ReplicaText(run.record.ReplicasWanted()), stages,
                     have, have == 1 ? "is" : "are");
}

}  // namespace longhaul::coordinator
