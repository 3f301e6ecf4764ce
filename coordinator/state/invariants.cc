#include "coordinator/state/invariants.h"

#include <algorithm>
#include <string>

#include "base/check.h"
#include "coordinator/state/ledger/ledger.h"
#include "coordinator/state/life/failures.h"
#include "coordinator/state/life/stages.h"
#include "coordinator/state/life/tuning.h"
#include "coordinator/state/planning/planning.h"
#include "coordinator/state/planning/queue.h"
#include "coordinator/state/workers/spares.h"
#include "coordinator/state/workers/worker_links.h"

namespace longhaul::coordinator {
namespace {

void CheckHeld(const Invariants& of, const Worker& worker) {
  const std::string& id = worker.id.value();
  const Draft* draft = of.planning.Find(*worker.held);
  const bool measured =
      draft != nullptr &&
      std::ranges::any_of(draft->workers, [&](const auto& one) { return one.id == worker.id; });
  if (of.planning.IsJob(*worker.held)) {
    LH_CHECK(measured, "worker {} is held by plan {}", id, worker.held->value());
    return;
  }
  const auto found = of.ledger.runs().find(*worker.held);
  LH_CHECK(found != of.ledger.runs().end() && IsActive(found->second.record.state),
           "worker {} is held by {}, which is not active", id, worker.held->value());
  const Run& run = found->second;
  const bool recovers = run.record.state == RunState::kRecovering;
  const bool planned = std::ranges::any_of(run.stages, [&](const StageRecord& stage) {
    return stage.worker == worker.id && (recovers || stage.incarnation == worker.incarnation);
  });
  // A recovering run also holds a worker that is to take a place, while it gets the shards.
  const bool spare =
      (recovers || of.spares.SparesWanted(run) > 0) && of.spares.IsSpareOf(worker, run);
  LH_CHECK(planned || measured || spare, "worker {} has no part in run {}, which holds it", id,
           worker.held->value());
}

void CheckRun(const Invariants& of, const Run& run) {
  const RunRecord& record = run.record;
  const std::string& id = record.id.value();
  const RunState state = record.state;
  LH_CHECK(state != RunState::kRecovering || record.plan, "run {} recovers without a plan", id);
  LH_CHECK(!IsActive(state) || record.epoch.value() > 0, "run {} is active in epoch 0", id);
  LH_CHECK(state != RunState::kFailed || !record.reason.empty(), "run {} failed without a reason",
           id);
  LH_CHECK(HasEnded(state) == (record.ended_unix_ms != 0), "run {} is {}, ended at {}", id,
           ToString(state), record.ended_unix_ms);
  LH_CHECK(record.step <= std::max<uint64_t>(record.spec.train.steps, 1),
           "run {} is at step {} of {}", id, record.step, record.spec.train.steps);
  LH_CHECK(!HasEnded(state) || !of.failures.AwaitsCause(run),
           "run {} has ended and waits for something", id);
  uint64_t step = 0;
  for (const v1::CheckpointManifest& manifest : record.checkpoints) {
    LH_CHECK(manifest.step() > step, "checkpoint {} of run {} comes after {}", manifest.step(), id,
             step);
    LH_CHECK(!manifest.cells().empty(), "checkpoint {} of run {} was written by nobody",
             manifest.step(), id);
    step = manifest.step();
  }
  of.planning.CheckInvariants(run);
  of.stages.CheckInvariants(run);
  if (HasStages(state)) of.tuning.CheckInvariants(run);
}

}  // namespace

void CheckInvariants(const Invariants& of) {
  of.ledger.CheckInvariants();
  of.links.CheckInvariants();
  of.queue.CheckInvariants();
  for (const auto& [id, worker] : of.ledger.workers()) {
    if (worker.held) CheckHeld(of, worker);
  }
  for (const auto& [id, run] : of.ledger.runs()) CheckRun(of, run);
}

}  // namespace longhaul::coordinator
