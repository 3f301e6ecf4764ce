// Spares: connected workers that a run reserves beside those of its stages. They time its layers,
// which loads and warms all that a stage needs, hold its copies (copies.cc) and take the place of a
// worker that is lost (recovery.cc). Whoever waits in the queue comes first.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "coordinator/state/core.h"
#include "coordinator/state/layer_times.h"

namespace longhaul::coordinator {

bool Core::IsSpareOf(const Worker& worker, const Run& run) const {
  if (worker.held != run.record.id) return false;
  if (run.draft) {
    return std::ranges::none_of(run.draft->workers,
                                [&](const auto& one) { return one.id == worker.id; });
  }
  return std::ranges::none_of(run.stages, [&](const auto& one) { return one.worker == worker.id; });
}

std::vector<Worker*> Core::SparesOf(const Run& run) {
  std::vector<Worker*> spares;
  for (const Worker* worker : ConnectedByName()) {
    if (IsSpareOf(*worker, run)) spares.push_back(FindWorker(worker->id));
  }
  return spares;
}

void Core::AdvanceSpares() {
  for (Run* run : RunsInOrder()) {
    const RunState state = run->record.state;
    const size_t wanted = SparesWanted(*run);
    if (wanted == 0 || (!HasStages(state) && state != RunState::kRecovering)) continue;
    size_t have = SparesOf(*run).size();
    for (const Worker* one : ConnectedByName()) {
      if (have >= wanted) break;
      if (!MayTake(*one) || !HasDevicesFor(run->record.spec, *one)) continue;
      // A stage of this very run that has not come back yet.
      const bool is_stage = std::ranges::any_of(
          run->stages, [&](const StageRecord& stage) { return stage.worker == one->id; });
      if (is_stage) continue;
      Worker& worker = *FindWorker(one->id);
      worker.held = run->record.id;
      ++have;
      Changed(*run);
      Log(run, "worker", fmt::format("worker {} is a spare of this run", Label(worker)));
    }
    AskSparesForTimes(*run);
  }
}

// Not only those that are reserved just now: one that lost its stage to a smaller number of
// replicas stays reserved, and a coordinator that started anew has forgotten all times.
void Core::AskSparesForTimes(const Run& run) {
  if (!HasStages(run.record.state)) return;  // before that nobody knows who has a stage
  for (Worker* spare : SparesOf(run)) {
    if (spare->layers || spare->times_for == run.record.id) continue;
    spare->times_for = run.record.id;
    SendMeasure(*spare, run.record.id, run.record.epoch, run.record.spec);
  }
}

// Such as one that was to take a place, whose worker came back before.
void Core::ReleaseSparesBeyond(const Run& run, size_t wanted) {
  std::vector<Worker*> spares = SparesOf(run);
  for (size_t i = wanted; i < spares.size(); ++i) spares[i]->held.reset();
}

// A spare has timed the layers.
void Core::OnSpareTimes(Worker& worker, const Run& run, const v1::LayerTimes& times) {
  if (!run.record.spec.replay && IsPlausible(times)) worker.layers = {run.record.spec, times, now_};
}

}  // namespace longhaul::coordinator
