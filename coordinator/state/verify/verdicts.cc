#include "coordinator/state/verify/verdicts.h"

#include <algorithm>

namespace longhaul::coordinator {

void Verdicts::Repeat(Run& run, uint64_t good_step, const std::string& cause) {
  if (!HasStages(run.record.state)) return;
  // What came of a wrong step is no measure for the right one, and no state to go on from.
  steps_.Distrust(run, good_step);
  shards_.DropAfter(run, good_step);
  failures_.Interrupt(run, cause);
}

void Verdicts::Evict(Run& run, const std::vector<WorkerId>& workers, uint64_t good_step,
                     const std::string& cause) {
  const bool has_stage = std::ranges::any_of(run.stages, [&](const StageRecord& stage) {
    return std::ranges::find(workers, stage.worker) != workers.end();
  });
  for (const WorkerId& id : workers) health_.Distrust(run, id, cause);
  if (has_stage) Repeat(run, good_step, cause);
  for (const WorkerId& id : workers) {
    Worker* const worker = ledger_.FindWorker(id);
    const bool is_busy = HasStages(run.record.state) && has_stage;
    if (worker != nullptr && worker->held == run.record.id && !is_busy) worker->held.reset();
  }
}

}  // namespace longhaul::coordinator
