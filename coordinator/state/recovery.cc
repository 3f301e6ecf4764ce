// A run goes on by itself after a loss: a worker that died, a link that could not be made again, an
// error of a stage. The first time in place: the next epoch of the same assignment, from the newest
// whole checkpoint, as soon as every cell has its worker again, or a new process of it; those who
// were not hurt keep their models. Where that was in vain, or a worker stays away, it is planned
// anew with whoever is there. It ends when it was tried too often without finishing a new step.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "coordinator/planner/codec_choice.h"
#include "coordinator/planner/replicas.h"
#include "coordinator/state/checkpoints.h"
#include "coordinator/state/core.h"
#include "coordinator/state/text.h"
#include "run/plan/proto/plan_proto.h"

namespace longhaul::coordinator {
namespace {

constexpr absl::Duration kLongestPause = absl::Seconds(60);

// Before the nth attempt in a row.
absl::Duration PauseBefore(uint32_t attempt) {
  if (attempt <= 1) return absl::ZeroDuration();
  return std::min(kLongestPause, absl::Seconds(1) * (1 << std::min(attempt - 2, 10U)));
}

}  // namespace

void Core::NoteProgress(Run& run) {
  Attempts& attempts = run.record.attempts;
  if (run.record.step <= attempts.best_step) return;
  attempts.best_step = run.record.step;
  attempts.in_a_row = 0;
}

bool Core::CountAttempt(Run& run, const std::string& cause, const std::string& error) {
  NoteProgress(run);
  Attempts& attempts = run.record.attempts;
  const uint32_t most = run.record.spec.recovery.attempts;
  const bool again = !error.empty() && error == attempts.error;
  attempts.error = error;
  if (most > 0 && again) {
    Fail(run, cause + ", for the second time");
    return false;
  }
  if (++attempts.in_a_row > most) {
    Fail(run, most == 0
                  ? cause
                  : fmt::format("{}; the run has begun again {} times without finishing a new "
                                "step",
                                cause, most));
    return false;
  }
  return true;
}

void Core::Interrupt(Run& run, std::string cause, bool is_error) {
  // A user has asked for its end, and has it.
  if (run.nonfinite || run.record.stop_asked) return Fail(run, cause);
  if (!CountAttempt(run, cause, is_error ? cause : "")) return;
  run.recovery = {.since = now_,
                  .not_before = now_ + PauseBefore(run.record.attempts.in_a_row),
                  .until = now_ + run.record.spec.reattach_timeout,
                  .move_failure = {}};
  ForgetEpoch(run);
  Move(run, Trigger::kInterrupted, cause);
}

void Core::InterruptDraft(const RunId& id, const std::string& cause) {
  if (jobs_.contains(id)) return FailDraft(id, cause);
  Run& run = *FindRun(id);
  if (!CountAttempt(run, cause, "")) return;
  run.recovery.not_before = now_ + PauseBefore(run.record.attempts.in_a_row);
  run.recovery.until = now_ + run.record.spec.reattach_timeout;
  ForgetEpoch(run);
  Move(run, Trigger::kInterrupted, cause);
}

void Core::ForgetEpoch(Run& run) {
  for (StageRecord& stage : run.stages) {
    stage.ready = stage.started = stage.finished = stage.stopped = false;
    stage.finished_step = 0;
    stage.detached.reset();
    stage.last.reset();
  }
  run.recent.clear();  // what it had finished may be finished again
  run.validation.reset();
  run.partial_steps.clear();
  run.partial_checkpoints.clear();
  run.skipped_checkpoints.clear();
  run.validation_early.clear();
  run.first_nonfinite.reset();
  run.suspicion.reset();
  run.nonfinite.reset();
  run.troubled_links.clear();
}

void Core::AdvanceRecoveries() {
  for (Run* run : RunsInOrder()) {
    if (run->record.state == RunState::kRecovering) AdvanceRecovery(*run);
  }
}

void Core::AdvanceRecovery(Run& run) {
  NoteWhoIsThere(run);
  const Crew crew = CrewOf(run);
  if (shards_.IsCheckingToResume(run.record.id)) return;  // they are on their way
  if (now_ < run.recovery.not_before) return;
  const v1::CheckpointManifest* newest = NewestWhole(run.record);
  if (newest == nullptr && !run.record.checkpoints.empty()) {
    return Fail(run, run.record.reason + "; no checkpoint is whole");
  }
  // Of a run that goes on with fewer replicas whoever is away is missed only where none is whole.
  const std::string missing = IsWhole(crew) ? "" : WhomItWaitsFor(run);
  const bool at_once = run.record.spec.recovery.replicas == LostReplica::kContinue ||
                       std::ranges::any_of(crew, [&](const Worker* worker) {
                         return worker != nullptr && IsSpareOf(*worker, run);
                       });
  const v1::CheckpointManifest* manifest = NewestWithinReach(run.record);
  const MonoTime patient_until = run.recovery.since + PatienceFor(run, newest, manifest, at_once);
  if (newest != nullptr && (manifest == nullptr || (manifest != newest && now_ < patient_until))) {
    run.recovery.until = std::max(run.recovery.until, patient_until);
    if (!missing.empty()) return Wait(run, missing);
    const v1::CheckpointFile* file = UnreachableFile(*newest);
    return Wait(run, fmt::format("waits for {}, which holds stage {} of the checkpoint of step {}",
                                 HoldersText(*file), file->stage(), newest->step()));
  }
  if (run.record.attempts.in_a_row > 1) {
    return PlanAnew(run,
                    fmt::format("attempt {} of {} is planned anew", run.record.attempts.in_a_row,
                                run.record.spec.recovery.attempts));
  }
  if (!run.recovery.move_failure.empty()) return PlanAnew(run, run.recovery.move_failure);
  if (!missing.empty()) return Wait(run, missing);
  const uint64_t step = manifest == nullptr ? 0 : manifest->step();
  StatusOr<Plan> plan = PlanWith(run, crew);
  if (!plan.ok()) return PlanAnew(run, std::string(Message(plan.status())));
  if (manifest != nullptr) {
    const std::vector<ShardMove> moves = MovesFor(*manifest, plan->assignment.cells);
    BeginMoves(run, step, moves);
    if (!moves.empty()) {
      for (Worker* worker : crew) worker->held = run.record.id;
      return;
    }
  }
  BeginNextEpoch(run, crew, *std::move(plan), step);
}

// For a newer checkpoint, of which somebody is away: no longer than its steps take to repeat. Where
// a spare stands ready, or the run goes on without, no longer than a process takes that is started
// again either.
absl::Duration Core::PatienceFor(const Run& run, const v1::CheckpointManifest* newest,
                                 const v1::CheckpointManifest* within_reach, bool at_once) const {
  if (newest == nullptr || within_reach == nullptr) return absl::ZeroDuration();
  const auto steps = static_cast<double>(newest->step() - within_reach->step());
  const absl::Duration repeated = absl::Seconds(steps * run.record.plan->prediction.step_seconds);
  return at_once ? std::min(kReturnPatience, repeated) : std::max(kReturnPatience, repeated);
}

void Core::Wait(Run& run, const std::string& sentence) {
  if (now_ >= run.recovery.until) return PlanAnew(run, sentence);
  if (sentence == run.waiting) return;
  run.waiting = sentence;
  Changed(run);
  Log(&run, "state", "recovering: " + sentence);
}

const v1::CheckpointManifest* Core::NewestWithinReach(const RunRecord& record) const {
  for (auto it = record.checkpoints.rbegin(); it != record.checkpoints.rend(); ++it) {
    if (DamageOf(*it).empty() && UnreachableFile(*it) == nullptr) return &*it;
  }
  return nullptr;
}

// Workers that were away and are back show as such.
void Core::NoteWhoIsThere(Run& run) {
  for (StageRecord& stage : run.stages) {
    const Worker* worker = FindWorker(stage.worker);
    const bool free = worker != nullptr && MayTake(*worker, &run.record.id);
    if (std::exchange(stage.attached, free) != free) Changed(run);
  }
}

std::vector<std::string> Core::Away(const Run& run) const {
  std::vector<std::string> away;
  for (const StageRecord& stage : run.stages) {
    if (!stage.attached) away.push_back(Label(stage) + LeftOutText(stage.worker));
  }
  return away;
}

std::string Core::WhomItWaitsFor(const Run& run) const {
  const std::vector<std::string> away = Away(run);
  return away.empty() ? "waits for a worker with the memory for a stage"
                      : fmt::format("waits for {} to come back", Join(away));
}

// Who takes whose place; of a cell that goes with its replica, nobody does.
std::string Core::ChangesTo(const Run& run, const Assignment& next) const {
  std::string changes;
  for (const Cell& cell : next.cells) {
    const StageRecord* before = run.Find(cell.id);
    const bool had_stage = std::ranges::any_of(
        run.stages, [&](const StageRecord& one) { return one.worker == cell.worker; });
    if (had_stage) continue;
    const std::string worker = Label(*FindWorker(cell.worker));
    changes += before == nullptr
                   ? fmt::format("; worker {} is {}", worker, ToString(cell.id))
                   : fmt::format("; worker {} takes the place of {}", worker, Label(*before));
  }
  return changes;
}

void Core::BeginNextEpoch(Run& run, const Crew& crew, Plan plan, uint64_t step) {
  RunRecord& record = run.record;
  const uint32_t replicas = ReplicasOf(run.assignment());
  const std::string away = Join(Away(run)), changes = ChangesTo(run, plan.assignment);
  for (Worker* worker : crew) worker->held = record.id;
  record.epoch = record.epoch.Next();
  plan.assignment.epoch = record.epoch;
  plan.assignment.start_step = step;
  plan.assignment.microbatches_before = MicrobatchesAt(record, step);
  record.plan = std::move(plan);
  const uint64_t before = std::exchange(record.step, step);
  DropCheckpointsAfter(run, step);
  run.stages = StagesOf(run.assignment());
  for (StageRecord& stage : run.stages) stage.attached = true;
  ReleaseSparesBeyond(run, SparesWanted(run));
  run.ready_until = now_ + options_.ready_timeout;
  // Of replicas that may be others than before.
  if (record.spec.links.HasAutoCodecs()) record.spec.links.chosen = CodecsOf(run.assignment());
  LogReplicas(run, replicas, away);
  Move(run, Trigger::kReplaced, "",
       fmt::format("epoch {} goes on from step {}, in place{}{}", record.epoch.value(), step,
                   before > step ? fmt::format(": {} steps are repeated", before - step) : "",
                   changes));
}

void Core::PlanAnew(Run& run, const std::string& why) {
  const v1::CheckpointManifest* manifest = NewestWithinReach(run.record);
  if (manifest == nullptr) manifest = NewestWhole(run.record);
  run.record.step = manifest == nullptr ? 0 : manifest->step();
  run.queue_order = next_order_++;
  Move(run, Trigger::kNobodyThere, run.record.reason, why);
  run.stages.clear();
  run.record.plan.reset();
}

}  // namespace longhaul::coordinator
