#include "coordinator/state/recovery/recovery.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "coordinator/state/ledger/epochs.h"
#include "coordinator/state/ledger/manifests.h"
#include "coordinator/state/ledger/replica_counts.h"
#include "coordinator/state/ledger/within_reach.h"
#include "coordinator/state/text.h"
#include "coordinator/state/workers/secrets.h"
#include "planner/codec_choice.h"
#include "planner/replicas.h"

namespace longhaul::coordinator {
namespace {

// A stored record that its epoch can go on from: a plan of the epoch that may be assigned, with an
// estimate for each cell and edge. The assignment of an older version has no hash: the run then
// begins another epoch.
bool HasWholePlan(const RunRecord& record) {
  return record.plan && record.plan->assignment.epoch == record.epoch &&
         record.plan->cells.size() == record.plan->assignment.cells.size() &&
         record.plan->edges.size() == record.plan->assignment.edges.size() &&
         CheckAssignment(record.plan->assignment).ok();
}

}  // namespace

void Recovery::Restart() {
  for (Run* run : ledger_.RunsInOrder()) {
    const RunState state = run->record.state;
    const bool needs_plan = HasStages(state) || state == RunState::kRecovering;
    if (needs_plan && !HasWholePlan(run->record)) {
      moves_.Move(*run, Trigger::kFailure,
                  "the store has no usable plan of its epoch" + HowToResume(run->record));
      continue;
    }
    Restart(*run);
    if (HasStages(state) && !IsSealed(run->assignment())) {
      failures_.Interrupt(*run, "an older version of the coordinator made its plan");
    }
  }
}

void Recovery::Restart(Run& run) {
  switch (run.record.state) {
    case RunState::kPlanning:
      failures_.Restart(run);
      moves_.Move(run, Trigger::kCoordinatorRestarted);
      return;
    case RunState::kQueued:
    case RunState::kRecovering:
      failures_.Restart(run);
      return;
    case RunState::kPreparing:
    case RunState::kRunning:
    case RunState::kFinishing:
      stages_.DetachAll(run);
      ledger_.Log(&run, "note",
                  "the coordinator restarted; waiting for the run's workers to come back");
      if (run.record.state == RunState::kRunning) tuning_.Restart(run);
      ledger_.Changed(run);
      return;
    case RunState::kDone:
    case RunState::kStopped:
    case RunState::kFailed:
      return;
  }
}

void Recovery::Advance() {
  for (Run* run : ledger_.Active()) {
    if (run->record.state == RunState::kRecovering) Advance(*run);
  }
}

void Recovery::Advance(Run& run) {
  NoteWhoIsThere(run);
  const Crew crew = crews_.For(run);
  if (shards_.book().IsCheckingToResume(run.record.id)) return;  // they are on their way
  if (ledger_.now() < failures_.PauseOf(run).not_before) return;
  const v1::CheckpointManifest* newest = NewestWhole(run.record);
  if (newest == nullptr && !run.record.checkpoints.empty()) {
    return failures_.Fail(run, run.record.reason + "; no checkpoint is whole");
  }
  // A run that goes on with fewer replicas misses a worker only where no replica is whole.
  const std::string missing = IsWhole(crew) ? "" : WhomItWaitsFor(run);
  const bool at_once = run.record.spec.recovery.replicas == LostReplica::kContinue ||
                       std::ranges::any_of(crew, [&](const Worker* worker) {
                         return worker != nullptr && spares_.IsSpareOf(*worker, run);
                       });
  const v1::CheckpointManifest* manifest = NewestWithinReach(ledger_, run.record);
  const MonoTime patient_until =
      failures_.PauseOf(run).since + PatienceFor(run, newest, manifest, at_once);
  if (newest != nullptr &&
      (manifest == nullptr || (manifest != newest && ledger_.now() < patient_until))) {
    failures_.WaitAtLeastUntil(run, patient_until);
    if (!missing.empty()) return Wait(run, missing);
    const v1::CheckpointFile* file = UnreachableFile(ledger_, *newest);
    LH_CHECK(file != nullptr, "run {} waits for its checkpoint of step {}, all of which is there",
             run.record.id.value(), newest->step());
    return Wait(run, fmt::format("waits for {}, which holds stage {} of the checkpoint of step {}",
                                 HoldersText(*file), file->stage(), newest->step()));
  }
  if (run.record.attempts.in_a_row > 1) {
    return PlanAnew(run,
                    fmt::format("attempt {} of {} is planned anew", run.record.attempts.in_a_row,
                                run.record.spec.recovery.attempts));
  }
  const std::string failure = move_failure_.Of(run);
  if (!failure.empty()) return PlanAnew(run, failure);
  if (!missing.empty()) return Wait(run, missing);
  const uint64_t step = manifest == nullptr ? 0 : manifest->step();
  StatusOr<Plan> plan = crews_.PlanWith(run, crew);
  if (!plan.ok()) return PlanAnew(run, std::string(Message(plan.status())));
  if (manifest != nullptr) {
    const std::vector<ShardMove> moves = MovesFor(*manifest, plan->assignment.cells);
    shards_.BeginMoves(run, step, moves);
    if (!moves.empty()) {
      for (Worker* worker : crew) worker->held = run.record.id;
      return;
    }
  }
  BeginNextEpoch(run, crew, *std::move(plan), step);
}

// How long to wait for a newer checkpoint, of which a holder is away: no longer than its steps take
// to repeat. Where a spare stands ready, or the run goes on without the holder, no longer than a
// process takes to start again either.
absl::Duration Recovery::PatienceFor(const Run& run, const v1::CheckpointManifest* newest,
                                     const v1::CheckpointManifest* within_reach,
                                     bool at_once) const {
  if (newest == nullptr || within_reach == nullptr) return absl::ZeroDuration();
  const auto steps = static_cast<double>(newest->step() - within_reach->step());
  const absl::Duration repeated = absl::Seconds(steps * run.record.plan->prediction.step_seconds);
  return at_once ? std::min(kReturnPatience, repeated) : std::max(kReturnPatience, repeated);
}

void Recovery::Wait(Run& run, const std::string& sentence) {
  if (ledger_.now() >= failures_.PauseOf(run).until) return PlanAnew(run, sentence);
  if (sentence == run.waiting) return;
  run.waiting = sentence;
  ledger_.Changed(run);
  ledger_.Log(&run, "state", "recovering: " + sentence);
}

// People see which workers are away, and which are back.
void Recovery::NoteWhoIsThere(Run& run) {
  for (StageRecord& stage : run.stages) {
    const Worker* worker = ledger_.FindWorker(stage.worker);
    const bool free = worker != nullptr && health_.MayTake(*worker, &run.record.id);
    if (stage.IsAttached() == free) continue;
    stage.MovePresence(free ? StageTrigger::kSessionBegan : StageTrigger::kLost);
    ledger_.Changed(run);
  }
}

std::vector<std::string> Recovery::Away(const Run& run) const {
  std::vector<std::string> away;
  for (const StageRecord& stage : run.stages) {
    if (!stage.IsAttached())
      away.push_back(ledger_.Label(stage) + health_.LeftOutText(stage.worker));
  }
  return away;
}

std::string Recovery::WhomItWaitsFor(const Run& run) const {
  const std::vector<std::string> away = Away(run);
  return away.empty() ? "waits for a worker with the memory for a stage"
                      : fmt::format("waits for {} to come back", Join(away));
}

// Who takes whose place. Nobody takes that of a cell which goes with its replica.
std::string Recovery::ChangesTo(const Run& run, const Assignment& next) const {
  std::string changes;
  for (const Cell& cell : next.cells) {
    const StageRecord* before = run.Find(cell.id);
    const bool had_stage = std::ranges::any_of(
        run.stages, [&](const StageRecord& one) { return one.worker == cell.worker; });
    if (had_stage) continue;
    const std::string worker = ledger_.Label(*ledger_.FindWorker(cell.worker));
    changes += before == nullptr ? fmt::format("; worker {} is {}", worker, ToString(cell.id))
                                 : fmt::format("; worker {} takes the place of {}", worker,
                                               ledger_.Label(*before));
  }
  return changes;
}

void Recovery::BeginNextEpoch(Run& run, const Crew& crew, Plan plan, uint64_t step) {
  RunRecord& record = run.record;
  const uint32_t replicas = ReplicasOf(run.assignment());
  const std::string away = Join(Away(run)), changes = ChangesTo(run, plan.assignment);
  for (Worker* worker : crew) worker->held = record.id;
  record.epoch = NextEpoch(run);
  plan.assignment.epoch = record.epoch;
  plan.assignment.start_step = step;
  plan.assignment.microbatches_before = MicrobatchesAt(record, step);
  SealAssignment(ledger_.options().lead, &plan.assignment);
  record.plan = std::move(plan);
  const uint64_t before = std::exchange(record.step, step);
  shards_.DropAfter(run, step);
  run.stages = StagesOf(run.assignment());
  for (StageRecord& stage : run.stages) stage.MovePresence(StageTrigger::kSessionBegan);
  spares_.ReleaseBeyond(run, spares_.SparesWanted(run));
  // The replicas may be others than before.
  if (record.spec.links.HasAutoCodecs()) record.spec.links.chosen = CodecsOf(run.assignment());
  LogReplicas(ledger_, run, replicas, away);
  moves_.Move(
      run, Trigger::kReplaced, "",
      fmt::format("epoch {} goes on from step {}, in place{}{}", record.epoch.value(), step,
                  before > step ? fmt::format(": {} steps are repeated", before - step) : "",
                  changes));
}

void Recovery::PlanAnew(Run& run, const std::string& why) {
  const v1::CheckpointManifest* manifest = NewestWithinReach(ledger_, run.record);
  if (manifest == nullptr) manifest = NewestWhole(run.record);
  run.record.step = manifest == nullptr ? 0 : manifest->step();
  run.queue_order = ledger_.NextOrder();
  moves_.Move(run, Trigger::kNobodyThere, run.record.reason, why);
  run.stages.clear();
  run.record.plan.reset();
}

}  // namespace longhaul::coordinator
