#include "coordinator/state/core.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "coordinator/state/text.h"

namespace longhaul::coordinator {

namespace {

// A tick that comes so long after its time shows that the process was stopped, or its machine.
constexpr absl::Duration kLate = absl::Seconds(1);

// A stored record that its epoch can go on from: a plan of the epoch that may be assigned,
// with an estimate for each cell and edge.
bool IsWhole(const RunRecord& record) {
  return record.plan && record.plan->assignment.epoch == record.epoch &&
         record.plan->cells.size() == record.plan->assignment.cells.size() &&
         record.plan->edges.size() == record.plan->assignment.edges.size() &&
         CheckAssignment(record.plan->assignment).ok();
}

// Not the numbers of a coordinator that was here before: workers may still answer what it asked.
uint64_t FirstNumber(const StateOptions& options, std::string_view of_what) {
  const std::string digest = HmacSha256(options.reach_secret, of_what);
  uint64_t number = 0;
  std::memcpy(&number, digest.data(), std::min(sizeof number, digest.size()));
  return number;
}

}  // namespace

bool IsActive(RunState state) {
  switch (state) {
    case RunState::kPlanning:
    case RunState::kPreparing:
    case RunState::kRunning:
    case RunState::kFinishing:
    case RunState::kRecovering:
      return true;
    case RunState::kQueued:
    case RunState::kDone:
    case RunState::kStopped:
    case RunState::kFailed:
      return false;
  }
  return false;
}

bool HasStages(RunState state) {
  return state == RunState::kPreparing || state == RunState::kRunning ||
         state == RunState::kFinishing;
}

Core::Core(const StateOptions& options, StoredRuns stored, uint64_t next_event_sequence,
           MonoTime now)
    : options_(options),
      reach_({.patience = options.reach_limit + kAnswerPatience,
              .secret = options.reach_secret,
              .first_check = FirstNumber(options, "first check"),
              .label = [this](const WorkerId& id) { return Label(*FindWorker(id)); }}),
      shards_(FirstNumber(options, "first check of shards")),
      health_(options.health),
      next_retune_(FirstNumber(options, "first retune")),
      next_event_(next_event_sequence),
      sequence_(next_event_sequence),
      created_(now),
      unreadable_(std::move(stored.unreadable)),
      last_tick_(now),
      now_(now) {
  for (RunRecord& record : stored.runs) {
    Run& run = runs_[record.id];
    run.record = std::move(record);
    run.order = run.queue_order = next_order_++;
    run.sequence = ++sequence_;
    if (const auto rows = stored.steps.find(run.record.id); rows != stored.steps.end()) {
      run.steps.Load(rows->second);
    }
    if (!run.record.plan) continue;
    run.stages = StagesOf(run.assignment());
    const bool begun =
        run.record.state == RunState::kRunning || run.record.state == RunState::kFinishing;
    for (StageRecord& stage : run.stages) stage.ready = begun;
  }
}

TickResult Core::Tick(std::vector<Event> events, MonoTime now, int64_t unix_ms) {
  out_ = TickResult();
  unix_ms_ = unix_ms;
  now_ = AwakeAt(now);
  if (!recovered_) Recover();
  for (Event& event : events) {
    std::visit([this](auto& one) { On(one); }, event);
  }
  CheckTimers();
  AdvanceDraftsOnReach();
  SubmitHeld();
  AdvanceRecoveries();
  AdvanceQueue();
  AdvanceSpares();
  AdvanceReplicas();
  AdvanceCopies();
  AnswerSubmits();
  for (auto& [id, run] : runs_) {
    if (std::exchange(run.dirty, false)) out_.writes.emplace_back(write::Run{run.record});
  }
  wake_at_ = NextWake();
  if (wake_at_) out_.wake_at = *wake_at_ + asleep_;
  CheckInvariants();
  return std::move(out_);
}

MonoTime Core::AwakeAt(MonoTime now) {
  const absl::Duration since = now - std::exchange(last_tick_, now);
  const bool late = wake_at_ && now - *wake_at_ - asleep_ > kLate;
  // Only a stop makes one tick late; a machine that is too slow makes many, and has to go on.
  if (late && !was_late_) {
    asleep_ += since;
    Log(nullptr, "note",
        fmt::format("the coordinator was asleep for {:.1f} s; nobody is blamed for that time",
                    absl::ToDoubleSeconds(since)));
  }
  was_late_ = late;
  return now + -asleep_;
}

void Core::Recover() {
  recovered_ = true;
  for (const UnreadableRun& run : unreadable_) {
    Log(nullptr, "note",
        fmt::format("run {} is set aside, its row in the store stays as it is: {}", run.id.value(),
                    Quoted(run.problem)));
  }
  for (Run* run : RunsInOrder()) {
    const RunState state = run->record.state;
    if ((HasStages(state) || state == RunState::kRecovering) && !IsWhole(run->record)) {
      Move(*run, Trigger::kFailure,
           "the store has no usable plan of its epoch" + HowToResume(*run));
      continue;
    }
    switch (state) {
      case RunState::kPlanning:
        run->recovery.until = created_ + run->record.spec.reattach_timeout;
        Move(*run, Trigger::kCoordinatorRestarted);
        break;
      case RunState::kQueued:
        run->recovery.until = created_ + run->record.spec.reattach_timeout;
        break;
      case RunState::kRecovering:
        run->recovery.since = run->recovery.not_before = created_;
        run->recovery.until = created_ + run->record.spec.reattach_timeout;
        break;
      case RunState::kPreparing:
      case RunState::kRunning:
      case RunState::kFinishing:
        DetachAll(*run);
        Log(run, "note", "the coordinator restarted; waiting for the run's workers to come back");
        if (state == RunState::kRunning) RecoverTuning(*run);
        Changed(*run);
        break;
      default:
        break;
    }
  }
}

void Core::CheckTimers() {
  std::vector<Worker*> silent;
  for (auto& [id, worker] : workers_) {
    if (worker.session && now_ - worker.last_heard >= SessionTimeoutOf(worker)) {
      silent.push_back(&worker);
    }
  }
  for (Worker* worker : silent) {
    const std::string why =
        fmt::format("no sign of life for {:g} s", absl::ToDoubleSeconds(SessionTimeoutOf(*worker)));
    out_.commands.emplace_back(command::CloseSession{*worker->session, why});
    Lose(*worker, why);
  }
  CheckShardTimers();
  CheckTraces();
  CheckProbes();
  Carry(reach_.PassTime(now_));
  std::vector<RunId> late;
  for (const auto& [id, job] : jobs_) {
    if (now_ >= job.draft.measure_until) late.push_back(id);
  }
  for (Run* run : RunsInOrder()) {
    if (run->draft && now_ >= run->draft->measure_until) late.push_back(run->record.id);
    CheckRunTimers(*run);
  }
  for (const RunId& id : late) {
    Draft* draft = FindDraft(id);
    if (draft == nullptr) continue;
    std::vector<Worker*> late_workers;
    for (const Draft::Candidate& candidate : draft->workers) {
      Worker* worker = FindWorker(candidate.id);
      if (!candidate.times && worker != nullptr) late_workers.push_back(worker);
    }
    const auto is_dropped = [&](Worker* worker) {
      Draft* still = FindDraft(id);
      return still != nullptr && DropCandidate(*still, *worker, "its layer times have not come");
    };
    std::erase_if(late_workers, is_dropped);
    std::string names;
    for (const Worker* worker : late_workers) {
      names += (names.empty() ? "" : ", ") + Label(*worker);
    }
    draft = FindDraft(id);
    if (draft == nullptr) continue;
    if (names.empty()) {  // only the data set is missing; that takes as long as it takes
      draft->measure_until = MonoTime::max();
      continue;
    }
    InterruptDraft(id,
                   fmt::format("layer times were asked for {:g} s ago and have not come from {}; "
                               "look at the log of that worker",
                               absl::ToDoubleSeconds(options_.measure_timeout), names));
  }
}

absl::Duration Core::SessionTimeoutOf(const Worker& worker) const {
  const auto run = worker.held ? runs_.find(*worker.held) : runs_.end();
  return run == runs_.end() ? options_.session_timeout : run->second.record.spec.session_timeout;
}

std::optional<MonoTime> Core::NextWake() const {
  MonoTime wake = MonoTime::max();
  const auto consider = [&wake](MonoTime time) { wake = std::min(wake, time); };
  for (const auto& [id, worker] : workers_) {
    if (worker.session) consider(worker.last_heard + SessionTimeoutOf(worker));
  }
  const auto consider_draft = [&consider](const Draft& draft) {
    consider(draft.measure_until);
    consider(draft.probes.NextWake());
    if (draft.awaits_reach) consider(draft.reach_until);
  };
  consider(reach_.NextWake());
  for (const auto& [id, job] : jobs_) consider_draft(job.draft);
  for (const HeldSubmit& held : held_submits_) consider(held.until);
  consider(shards_.NextWake());
  consider(traces_.NextWake());
  consider(health_.NextWake(now_));
  for (const auto& [id, run] : runs_) {
    if (run.draft) consider_draft(*run.draft);
    consider(DetachedWake(run));
    if (run.record.state == RunState::kQueued && now_ < run.recovery.not_before) {
      consider(run.recovery.not_before);
    }
    if (run.record.state == RunState::kRecovering) {
      consider(now_ < run.recovery.not_before ? run.recovery.not_before : run.recovery.until);
    }
    if (run.ready_until) consider(*run.ready_until);
    if (run.suspicion) consider(run.suspicion->until);
    if (run.nonfinite) consider(run.nonfinite->until);
  }
  if (wake == MonoTime::max()) return std::nullopt;
  // Not much later than that, so that a stop of the process shows by its late tick before it looks
  // like the silence of all workers.
  return std::min(wake, now_ + options_.heartbeat_interval);
}

void Core::Move(Run& run, Trigger trigger, const std::string& reason, const std::string& text) {
  const RunState from = run.record.state;
  const Transition* row = FindTransition(from, trigger);
  LH_CHECK(row != nullptr, "run {} is {}, where '{}' means nothing", run.record.id.value(),
           ToString(from), ToString(trigger));
  run.record.state = row->to;
  if (row->to == RunState::kRecovering) faults_.Add(FaultKind::kRunInterrupted);
  if (row->to == RunState::kFailed) faults_.Add(FaultKind::kRunFailed);
  run.record.reason = reason;
  if (row->to != RunState::kFinishing) run.record.resize_asked = false;
  run.progressed_at = now_;
  run.waiting.clear();
  if (row->to != RunState::kPlanning) {
    if (run.draft) Cancel(run.draft->computation);
    run.draft.reset();
    shards_.DropResumeChecks(run.record.id);
  }
  if (row->to != RunState::kPreparing) run.ready_until.reset();
  if (row->to == RunState::kPreparing) run.workers_lost.clear();  // of the epoch before
  Cancel(run.tuning.computation);
  run.tuning = Tuning();
  if (row->to == RunState::kRunning) BeginTuning(run);
  if (row->to == RunState::kRunning && run.record.started_unix_ms == 0) {
    run.record.started_unix_ms = unix_ms_;
  }
  if (HasEnded(row->to)) {
    run.record.ended_unix_ms = std::max<int64_t>(unix_ms_, 1);
    for (StageRecord& stage : run.stages) stage.detached.reset();
    run.suspicion.reset();
    run.nonfinite.reset();
    run.steps = StepBook();
    run.partial_steps.clear();
    run.troubled_links.clear();
    if (run.dropped > 1) {
      Log(&run, "note",
          fmt::format("{} messages that did not belong to its epoch were dropped", run.dropped));
    }
  }
  Store(run);
  const std::string& more = text.empty() ? reason : text;
  Log(&run, "state",
      more.empty() ? std::string(ToString(row->to))
                   : fmt::format("{}: {}", ToString(row->to), more));
  Act(run, row->action, reason);
}

void Core::Act(Run& run, Action action, const std::string& reason) {
  switch (action) {
    case Action::kNone:
      return;
    case Action::kMeasure:
      BeginDraft(*run.draft);
      return;
    case Action::kAssign:
      for (const StageRecord& stage : run.stages) {
        if (Worker* worker = LiveWorkerOf(stage.worker, stage.incarnation)) {
          SendAssign(*worker, run, stage);
        }
      }
      return;
    case Action::kStart:
      for (const StageRecord& stage : run.stages) {
        if (Worker* worker = LiveWorkerOf(stage.worker, stage.incarnation)) {
          SendStart(*worker, run);
        }
      }
      return;
    case Action::kStop:
      SendStop(run);
      return;
    case Action::kAbort:
    case Action::kAbortAndRelease:
      for (const auto& [id, worker] : workers_) {
        if (worker.held == run.record.id && worker.session) {
          SendAbort(worker, run.record.id, run.record.epoch,
                    reason.empty() ? "every stage has finished" : reason, reason.empty());
        }
      }
      if (action == Action::kAbortAndRelease) Release(run);
      return;
  }
}

void Core::Release(Run& run) {
  for (auto& [id, worker] : workers_) {
    if (worker.held == run.record.id) worker.held.reset();
  }
}

void Core::Changed(Run& run) {
  run.sequence = ++sequence_;
}

void Core::Store(Run& run) {
  run.dirty = true;
  run.stored_at = now_;
  Changed(run);
}

void Core::Log(const Run* run, std::string_view kind, std::string text) {
  v1::Event event;
  event.set_sequence(next_event_++);
  event.set_unix_ms(unix_ms_);
  if (run != nullptr) {
    event.set_run_id(run->record.id.value());
    event.set_epoch(run->record.epoch.value());
  }
  event.set_kind(std::string(kind));
  event.set_text(std::move(text));
  out_.writes.emplace_back(write::LogEvent{std::move(event)});
}

v1::WorkerCommand Core::CommandFor(const RunId& run, Epoch epoch) const {
  v1::WorkerCommand command;
  command.set_run_id(run.value());
  command.set_epoch(epoch.value());
  return command;
}

void Core::Send(const Worker& worker, v1::WorkerCommand command) {
  LH_CHECK(worker.session.has_value(), "a command for worker {}, which is not connected",
           worker.id.value());
  out_.commands.emplace_back(command::ToWorker{*worker.session, std::move(command)});
}

void Core::SendAbort(const Worker& worker, const RunId& run, Epoch epoch, const std::string& reason,
                     bool finished) {
  v1::WorkerCommand command = CommandFor(run, epoch);
  command.mutable_abort()->set_reason(reason);
  command.mutable_abort()->set_finished(finished);
  Send(worker, std::move(command));
}

Worker* Core::FindWorker(const WorkerId& id) {
  const auto it = workers_.find(id);
  return it == workers_.end() ? nullptr : &it->second;
}

const Worker* Core::FindWorker(const WorkerId& id) const {
  const auto it = workers_.find(id);
  return it == workers_.end() ? nullptr : &it->second;
}

Worker* Core::WorkerOf(SessionId session) {
  const auto it = sessions_.find(session);
  return it == sessions_.end() ? nullptr : FindWorker(it->second);
}

Run* Core::FindRun(const RunId& id) {
  const auto it = runs_.find(id);
  return it == runs_.end() ? nullptr : &it->second;
}

const Run* Core::FindRunByText(std::string_view id_or_name) const {
  if (const auto it = runs_.find(RunId(std::string(id_or_name))); it != runs_.end()) {
    return &it->second;
  }
  const Run* newest = nullptr;
  for (const auto& [id, run] : runs_) {
    if (run.record.spec.name != id_or_name) continue;
    if (newest == nullptr || run.order > newest->order) newest = &run;
  }
  return newest;
}

std::vector<Run*> Core::RunsInOrder() {
  std::vector<Run*> runs;
  runs.reserve(runs_.size());
  for (auto& [id, run] : runs_) runs.push_back(&run);
  std::sort(runs.begin(), runs.end(),
            [](const Run* a, const Run* b) { return a->order < b->order; });
  return runs;
}

StageRecord* Core::StageOf(Run& run, const Worker& worker) {
  for (StageRecord& stage : run.stages) {
    if (stage.worker == worker.id && stage.incarnation == worker.incarnation) return &stage;
  }
  return nullptr;
}

Worker* Core::LiveWorkerOf(const WorkerId& id, const Incarnation& incarnation) {
  Worker* worker = FindWorker(id);
  if (worker == nullptr || !worker->session || worker->incarnation != incarnation) return nullptr;
  return worker;
}

std::string Core::Label(const Worker& worker) const {
  const bool shared = std::any_of(workers_.begin(), workers_.end(), [&](const auto& entry) {
    const Worker& other = entry.second;
    return other.session && other.id != worker.id && other.hello.name() == worker.hello.name();
  });
  if (!shared) return worker.hello.name();
  return fmt::format("{} ({})", worker.hello.name(), worker.id.value().substr(0, 8));
}

std::string Core::Label(const StageRecord& stage) const {
  const Worker* worker = FindWorker(stage.worker);
  return fmt::format("worker {} ({})", worker == nullptr ? stage.name : Label(*worker),
                     ToString(stage.id));
}

}  // namespace longhaul::coordinator
