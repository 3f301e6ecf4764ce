// A run goes on by itself after a loss: a worker that died, a link that could not be made again, an
// error of a stage. The first time in place: the next epoch of the same assignment, from the newest
// whole checkpoint, as soon as every cell has its worker again, or a new process of it; those who
// were not hurt keep their models. Where that was in vain, or a worker stays away, it is planned
// anew with whoever is there. It ends when it was tried too often without finishing a new step.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "coordinator/state/checkpoints.h"
#include "coordinator/state/core.h"
#include "coordinator/state/text.h"
#include "run/plan/proto/plan_proto.h"

namespace longhaul::coordinator {
namespace {

// A process that died is often started again at once. Others take its place only after that.
constexpr absl::Duration kReturnPatience = absl::Seconds(5);
constexpr absl::Duration kLongestPause = absl::Seconds(60);

// Before the nth attempt in a row.
absl::Duration PauseBefore(uint32_t attempt) {
  if (attempt <= 1) return absl::ZeroDuration();
  return std::min(kLongestPause, absl::Seconds(1) * (1 << std::min(attempt - 2, 10U)));
}

}  // namespace

bool Core::CountAttempt(Run& run, const std::string& cause, const std::string& error) {
  Recovery& recovery = run.recovery;
  const uint32_t most = run.record.spec.recovery.attempts;
  if (run.record.step > recovery.best_step) {
    recovery.best_step = run.record.step;
    recovery.attempts = 0;
  }
  const bool again = !error.empty() && error == recovery.error;
  recovery.error = error;
  if (most > 0 && again) {
    Fail(run, cause + ", for the second time");
    return false;
  }
  if (++recovery.attempts > most) {
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
  const bool stops = run.record.state == RunState::kFinishing &&
                     std::ranges::none_of(run.stages, [](const StageRecord& one) {
                       return one.finished && !one.stopped;
                     });
  if (run.nonfinite || stops) return Fail(run, cause);
  if (!CountAttempt(run, cause, is_error ? cause : "")) return;
  Recovery& recovery = run.recovery;
  recovery.not_before = now_ + PauseBefore(recovery.attempts);
  recovery.since = now_;
  recovery.until = now_ + options_.reattach_timeout;
  ForgetEpoch(run);
  Move(run, Trigger::kInterrupted, cause);
}

void Core::InterruptDraft(const RunId& id, const std::string& cause) {
  if (jobs_.contains(id)) return FailDraft(id, cause);
  Run& run = *FindRun(id);
  if (!CountAttempt(run, cause, "")) return;
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
  const v1::CheckpointManifest* manifest = NewestWhole(run.record);
  if (manifest == nullptr && !run.record.checkpoints.empty()) {
    return Fail(run, run.record.reason + "; no checkpoint is whole");
  }
  const StatusOr<std::vector<Worker*>> workers = TakeWorkersOfPlan(run, manifest);
  if (now_ < run.recovery.not_before) return;
  if (run.recovery.attempts > 1) {
    return PlanAnew(run, fmt::format("attempt {} of {} is planned anew", run.recovery.attempts,
                                     run.record.spec.recovery.attempts));
  }
  if (workers.ok())
    return BeginNextEpoch(run, *workers, manifest == nullptr ? 0 : manifest->step());
  const std::string sentence(Message(workers.status()));
  // Others may take the place of who is away, where what it trained is somewhere else too.
  const bool left_out = std::ranges::any_of(run.stages, [this](const StageRecord& stage) {
    return health_.LeftOutUntil(stage.worker, now_).has_value();
  });
  const auto usable = std::ranges::count_if(
      connected_, [&](const Worker* worker) { return MayTake(*worker, &run.record.id); });
  const bool replaceable = (left_out || now_ >= run.recovery.since + kReturnPatience) &&
                           (manifest == nullptr || UnreachableFile(*manifest) == nullptr) &&
                           static_cast<size_t>(usable) >= run.stages.size();
  if (now_ >= run.recovery.until || replaceable) return PlanAnew(run, sentence);
  if (sentence == run.waiting) return;
  run.waiting = sentence;
  Changed(run);
  Log(&run, "state", "recovering: " + sentence);
}

StatusOr<std::vector<Worker*>> Core::TakeWorkersOfPlan(Run& run,
                                                       const v1::CheckpointManifest* manifest) {
  std::vector<Worker*> workers;
  std::vector<std::string> missing;
  for (StageRecord& stage : run.stages) {
    Worker* worker = FindWorker(stage.worker);
    const bool free = worker != nullptr && MayTake(*worker, &run.record.id);
    if (std::exchange(stage.attached, free) != free) Changed(run);
    if (free) {
      worker->held = run.record.id;
      workers.push_back(worker);
    } else {
      missing.push_back(Label(stage) + LeftOutText(stage.worker));
    }
  }
  if (!missing.empty()) {
    return absl::UnavailableError(fmt::format("waits for {} to come back", Join(missing)));
  }
  if (manifest == nullptr) return workers;
  if (const v1::CheckpointFile* file = UnreachableFile(*manifest)) {
    return absl::UnavailableError(
        fmt::format("waits for worker {}, which holds stage {} of the checkpoint of step {}",
                    HolderOf(*manifest, *file), file->stage(), manifest->step()));
  }
  // Such as after a resume with other workers: shards that have to move are moved by a plan.
  const Assignment& assignment = run.assignment();
  if (!FilesToMove(*manifest, assignment.cells).empty()) {
    return absl::UnavailableError("shards of its checkpoint have to move");
  }
  return workers;
}

void Core::BeginNextEpoch(Run& run, const std::vector<Worker*>& workers, uint64_t step) {
  RunRecord& record = run.record;
  record.epoch = record.epoch.Next();
  const uint64_t before = std::exchange(record.step, step);
  Assignment& assignment = record.plan->assignment;
  assignment.epoch = record.epoch;
  assignment.start_step = step;
  for (Cell& cell : assignment.cells) {
    const Worker& worker = *workers[static_cast<size_t>(&cell - assignment.cells.data())];
    cell.incarnation = worker.incarnation;
    cell.worker_name = worker.hello.name();
    cell.endpoints = FromProto(worker.hello.endpoints());
  }
  DropCheckpointsAfter(run, step);
  run.stages = StagesOf(assignment);
  for (StageRecord& stage : run.stages) stage.attached = true;
  run.ready_until = now_ + options_.ready_timeout;
  Move(run, Trigger::kReplaced, "",
       fmt::format("epoch {} goes on from step {}, in place{}", record.epoch.value(), step,
                   before > step ? fmt::format(": {} steps are repeated", before - step) : ""));
}

void Core::PlanAnew(Run& run, const std::string& why) {
  const v1::CheckpointManifest* manifest = NewestWhole(run.record);
  run.record.step = manifest == nullptr ? 0 : manifest->step();
  run.queue_order = next_order_++;
  Move(run, Trigger::kNobodyThere, run.record.reason, why);
  run.stages.clear();
  run.record.plan.reset();
}

}  // namespace longhaul::coordinator
