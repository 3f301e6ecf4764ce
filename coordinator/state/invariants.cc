// What holds after every tick, whatever came in. In all builds.
#include <algorithm>

#include "base/check.h"
#include "coordinator/state/core.h"

namespace longhaul::coordinator {

void Core::CheckInvariants() const {
  CheckWorkers();
  for (const auto& [id, run] : runs_) {
    LH_CHECK(id == run.record.id, "run {} is filed as {}", run.record.id.value(), id.value());
    LH_CHECK(!jobs_.contains(id), "{} is a run and a request to plan", id.value());
    LH_CHECK(!run.dirty, "a change of run {} was not written", id.value());
    CheckRun(run);
  }
  LH_CHECK(submits_.empty(), "{} submissions were not answered", submits_.size());
}

void Core::CheckWorkers() const {
  size_t connected = 0;
  for (const auto& [id, worker] : workers_) {
    LH_CHECK(id == worker.id, "worker {} is filed as {}", worker.id.value(), id.value());
    if (!worker.session) {
      LH_CHECK(!worker.held, "worker {} is gone and held by {}", id.value(), worker.held->value());
      continue;
    }
    ++connected;
    const auto session = sessions_.find(*worker.session);
    LH_CHECK(session != sessions_.end() && session->second == id,
             "the session of worker {} is not known as its own", id.value());
    if (!worker.held) continue;
    const auto run = runs_.find(*worker.held);
    const auto job = jobs_.find(*worker.held);
    const auto is_it = [&worker = worker](const auto& one) { return one.id == worker.id; };
    if (job != jobs_.end()) {
      const auto& wanted = job->second.draft.workers;
      LH_CHECK(std::any_of(wanted.begin(), wanted.end(), is_it), "worker {} is held by plan {}",
               id.value(), job->first.value());
      continue;
    }
    LH_CHECK(run != runs_.end() && IsActive(run->second.record.state),
             "worker {} is held by {}, which is not active", id.value(), worker.held->value());
    const bool recovers = run->second.record.state == RunState::kRecovering;
    const auto& stages = run->second.stages;
    const auto& draft = run->second.draft;
    const bool planned =
        std::any_of(stages.begin(), stages.end(), [&worker = worker, recovers](const auto& s) {
          return s.worker == worker.id && (recovers || s.incarnation == worker.incarnation);
        });
    const bool measured = draft && std::any_of(draft->workers.begin(), draft->workers.end(), is_it);
    // Also one that is to take a place, while it gets the shards.
    const bool spare =
        (recovers || SparesWanted(run->second) > 0) && IsSpareOf(worker, run->second);
    LH_CHECK(planned || measured || spare, "worker {} has no part in run {}, which holds it",
             id.value(), worker.held->value());
  }
  LH_CHECK(connected == sessions_.size(), "{} workers have sessions, {} sessions are known",
           connected, sessions_.size());
  LH_CHECK(connected == connected_.size(), "{} workers have sessions, {} are listed by name",
           connected, connected_.size());
  reach_.CheckInvariants();
}

void Core::CheckRun(const Run& run) const {
  const RunRecord& record = run.record;
  const std::string& id = record.id.value();
  const RunState state = record.state;
  LH_CHECK(run.draft.has_value() == (state == RunState::kPlanning), "run {} is {} and {} a draft",
           id, ToString(state), run.draft ? "has" : "lacks");
  LH_CHECK(state != RunState::kRecovering || record.plan, "run {} recovers without a plan", id);
  LH_CHECK(!IsActive(state) || record.epoch.value() > 0, "run {} is active in epoch 0", id);
  LH_CHECK(state != RunState::kFailed || !record.reason.empty(), "run {} failed without a reason",
           id);
  LH_CHECK(HasEnded(state) == (record.ended_unix_ms != 0), "run {} is {}, ended at {}", id,
           ToString(state), record.ended_unix_ms);
  LH_CHECK(record.step <= std::max<uint64_t>(record.spec.train.steps, 1),
           "run {} is at step {} of {}", id, record.step, record.spec.train.steps);
  LH_CHECK(run.ready_until.has_value() <= (state == RunState::kPreparing),
           "run {} is {} and waits for stages to be ready", id, ToString(state));
  LH_CHECK(!HasEnded(state) || (!run.suspicion && !run.nonfinite),
           "run {} has ended and waits for something", id);
  uint64_t step = 0;
  for (const v1::CheckpointManifest& manifest : record.checkpoints) {
    LH_CHECK(manifest.step() > step, "checkpoint {} of run {} comes after {}", manifest.step(), id,
             step);
    LH_CHECK(!manifest.cells().empty(), "checkpoint {} of run {} was written by nobody",
             manifest.step(), id);
    step = manifest.step();
  }
  if (HasStages(state)) {
    CheckStages(run);
    CheckTuning(run);
  }
}

void Core::CheckTuning(const Run& run) const {
  // Without a change the settings are the plan's, which CheckAssignment has seen.
  const Cell* unsafe =
      run.tuning.change.IsUnderWay() ? run.tuning.change.FirstUnsafe(run.assignment()) : nullptr;
  LH_CHECK(unsafe == nullptr,
           "run {}: {} may wait for more activations than are in flight above it",
           run.record.id.value(), unsafe == nullptr ? "" : ToString(unsafe->id));
  LH_CHECK(!run.tuning.computation || run.record.state == RunState::kRunning,
           "run {} is {} and waits for a better plan", run.record.id.value(),
           ToString(run.record.state));
}

void Core::CheckStages(const Run& run) const {
  const RunRecord& record = run.record;
  const std::string& id = record.id.value();
  LH_CHECK(record.plan && record.plan->assignment.epoch == record.epoch,
           "run {} is active without a plan of epoch {}", id, record.epoch.value());
  LH_CHECK(!run.stages.empty() && run.stages.size() == run.assignment().cells.size(),
           "run {} has {} stages, its plan {}", id, run.stages.size(),
           run.assignment().cells.size());
  bool all_ready = true, all_finished = true;
  for (const StageRecord& stage : run.stages) {
    all_ready = all_ready && stage.ready;
    all_finished = all_finished && stage.finished;
    LH_CHECK(run.assignment().cells[stage.place].id == stage.id,
             "{} of run {} is filed in another place than in the plan", ToString(stage.id), id);
    const auto it = workers_.find(stage.worker);
    const bool live = it != workers_.end() && it->second.session &&
                      it->second.incarnation == stage.incarnation && it->second.held == record.id;
    if (stage.attached) {
      LH_CHECK(!stage.detached, "{} of run {} is attached and detached", ToString(stage.id), id);
      LH_CHECK(live, "{} of run {} is attached to worker {}, which is not there",
               ToString(stage.id), id, stage.worker.value());
    } else {
      LH_CHECK(stage.finished || stage.detached, "{} of run {} has no worker", ToString(stage.id),
               id);
    }
  }
  LH_CHECK(all_ready || record.state == RunState::kPreparing,
           "run {} is {} before all stages were ready", id, ToString(record.state));
  LH_CHECK(!all_finished, "run {} goes on though all stages finished", id);
}

}  // namespace longhaul::coordinator
