#include "coordinator/state/ledger/ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/escaping.h"
#include "base/check.h"
#include "base/hash.h"
#include "coordinator/state/text.h"

namespace longhaul::coordinator {

bool NameLess::operator()(const Worker* a, const Worker* b) const {
  if (a->hello.name() != b->hello.name()) return NaturalLess(a->hello.name(), b->hello.name());
  return a->id < b->id;
}

bool IsWhole(const Crew& crew) {
  return std::ranges::find(crew, nullptr) == crew.end();
}

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

Ledger::Ledger(const StateOptions& options, uint64_t next_event_sequence, MonoTime now)
    : options_(options),
      next_event_(next_event_sequence),
      sequence_(next_event_sequence),
      created_(now),
      clock_(now) {}

void Ledger::BeginTick(MonoTime now, int64_t unix_ms) {
  out_ = TickResult();
  unix_ms_ = unix_ms;
  const absl::Duration stopped = clock_.Begin(now);
  if (stopped == absl::ZeroDuration()) return;
  Log(nullptr, "note",
      fmt::format("the coordinator was asleep for {:.1f} s; nobody is blamed for that time",
                  absl::ToDoubleSeconds(stopped)));
}

namespace {

bool Deletes(const Command& command) {
  if (const auto* to = std::get_if<command::ToWorker>(&command)) {
    return to->message.has_drop_checkpoint();
  }
  if (const auto* collect = std::get_if<command::CollectGarbage>(&command))
    return !collect->dry_run;
  return std::holds_alternative<command::DropCopies>(command) ||
         std::holds_alternative<command::TrimFolder>(command);
}

}  // namespace

TickResult Ledger::EndTick(MonoTime wake) {
  for (const RunId& id : std::exchange(dirty_, {})) {
    Run* run = FindRun(id);
    if (run == nullptr || !std::exchange(run->dirty, false)) continue;
    out_.writes.emplace_back(write::Run{run->record});
  }
  if (out_.writes.empty() && std::ranges::any_of(out_.commands, Deletes)) {
    out_.writes.emplace_back(write::Barrier{});
  }
  // Not much later than the next heartbeat, so that a stop of the process shows by its late tick
  // before it looks like the silence of all workers.
  if (wake != MonoTime::max()) wake = std::min(wake, now() + options_.heartbeat_interval);
  if (const auto due = clock_.End(wake)) out_.wake_at = *due;
  return std::move(out_);
}

uint64_t Ledger::FirstNumber(std::string_view of_what) const {
  const std::string digest = HmacSha256(options_.reach_secret, of_what);
  uint64_t number = 0;
  std::memcpy(&number, digest.data(), std::min(sizeof number, digest.size()));
  return number;
}

void Ledger::Changed(Run& run) {
  run.sequence = ++sequence_;
}

void Ledger::Store(Run& run) {
  run.dirty = true;
  dirty_.insert(run.record.id);
  NoteState(run);
  run.stored_at = now();
  Changed(run);
}

void Ledger::Log(const Run* run, std::string_view kind, std::string text) {
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

v1::WorkerCommand Ledger::CommandFor(const RunId& run, Epoch epoch) const {
  v1::WorkerCommand command;
  command.set_run_id(run.value());
  command.set_epoch(epoch.value());
  const auto found = runs_.find(run);
  const bool has_plan = found != runs_.end() && found->second.record.plan &&
                        found->second.assignment().epoch == epoch;
  const Stamp stamp = has_plan ? found->second.assignment().stamp() : StampOf(DraftTag(run, epoch));
  command.set_stamp(stamp.value());
  return command;
}

std::string Ledger::DraftTag(const RunId& run, Epoch epoch) const {
  // The run's id comes last: all other parts have a fixed length or end with a space.
  return absl::HexStringToBytes(
      Sha256Hex(fmt::format("draft {} {} {} {}", epoch.value(), options_.lead.term,
                            absl::BytesToHexString(options_.lead.tenure.value()), run.value())));
}

void Ledger::Send(const Worker& worker, v1::WorkerCommand command) {
  LH_CHECK(worker.session.has_value(), "a command for worker {}, which is not connected",
           worker.id.value());
  out_.commands.emplace_back(command::ToWorker{*worker.session, std::move(command)});
}

void Ledger::SendAbort(const Worker& worker, const RunId& run, Epoch epoch,
                       const std::string& reason, bool finished) {
  v1::WorkerCommand command = CommandFor(run, epoch);
  command.mutable_abort()->set_reason(reason);
  command.mutable_abort()->set_finished(finished);
  Send(worker, std::move(command));
}

Worker* Ledger::FindWorker(const WorkerId& id) {
  const auto it = workers_.find(id);
  return it == workers_.end() ? nullptr : &it->second;
}

const Worker* Ledger::FindWorker(const WorkerId& id) const {
  const auto it = workers_.find(id);
  return it == workers_.end() ? nullptr : &it->second;
}

Worker* Ledger::WorkerOf(SessionId session) {
  const auto it = sessions_.find(session);
  return it == sessions_.end() ? nullptr : FindWorker(it->second);
}

Run& Ledger::Load(RunRecord record) {
  Run& run = runs_[record.id];
  run.record = std::move(record);
  run.order = run.queue_order = NextOrder();
  run.sequence = ++sequence_;
  NoteState(run);
  if (!run.record.plan) return run;
  run.stages = StagesOf(run.assignment());
  const RunState state = run.record.state;
  if (state != RunState::kRunning && state != RunState::kFinishing) return run;
  for (StageRecord& stage : run.stages) stage.MovePhase(StageTrigger::kSaidReady);
  return run;
}

Run* Ledger::FindRun(const RunId& id) {
  const auto it = runs_.find(id);
  return it == runs_.end() ? nullptr : &it->second;
}

StatusOr<const Run*> Ledger::RunCalled(std::string_view id_or_name,
                                       std::optional<std::string_view> owner) const {
  const auto counts = [&](const Run& run) { return !owner || run.record.owner == *owner; };
  const auto it = runs_.find(RunId(std::string(id_or_name)));
  if (it != runs_.end() && counts(it->second)) return &it->second;
  const Run* newest = nullptr;
  for (const auto& [id, run] : runs_) {
    if (run.record.spec.name != id_or_name || !counts(run)) continue;
    if (newest == nullptr || run.order > newest->order) newest = &run;
  }
  if (newest != nullptr) return newest;
  return NotFound("there is no run '{}'; `longhaul ps` lists the runs", id_or_name);
}

StatusOr<Run*> Ledger::RunCalled(std::string_view id_or_name) {
  LH_ASSIGN_OR_RETURN(const Run* run, std::as_const(*this).RunCalled(id_or_name));
  return const_cast<Run*>(run);
}

std::vector<Run*> Ledger::RunsInOrder() {
  std::vector<Run*> runs;
  runs.reserve(runs_.size());
  for (auto& [id, run] : runs_) runs.push_back(&run);
  std::sort(runs.begin(), runs.end(),
            [](const Run* a, const Run* b) { return a->order < b->order; });
  return runs;
}

namespace {

bool HasCheckpointWork(const RunSpec& spec) {
  return !spec.checkpoint.to.empty() || !spec.hooks.on_checkpoint.empty();
}

std::vector<Run*> InOrder(const std::map<uint64_t, Run*>& by_order) {
  std::vector<Run*> runs;
  runs.reserve(by_order.size());
  for (const auto& [order, run] : by_order) runs.push_back(run);
  return runs;
}

void Keep(bool keep, Run& run, std::map<uint64_t, Run*>* by_order) {
  if (keep) {
    (*by_order)[run.order] = &run;
  } else {
    by_order->erase(run.order);
  }
}

}  // namespace

void Ledger::NoteState(Run& run) {
  Keep(!HasEnded(run.record.state), run, &active_);
  Keep(HasCheckpointWork(run.record.spec), run, &with_checkpoint_work_);
}

void Ledger::NoteRemoved(const Run& run) {
  active_.erase(run.order);
  with_checkpoint_work_.erase(run.order);
}

std::vector<Run*> Ledger::Active() const {
  return InOrder(active_);
}

std::vector<Run*> Ledger::WithCheckpointWork() const {
  return InOrder(with_checkpoint_work_);
}

StageRecord* Ledger::StageOf(Run& run, const Worker& worker) {
  for (StageRecord& stage : run.stages) {
    if (stage.worker == worker.id && stage.incarnation == worker.incarnation) return &stage;
  }
  return nullptr;
}

Worker* Ledger::LiveWorkerOf(const WorkerId& id, const Incarnation& incarnation) {
  Worker* worker = FindWorker(id);
  if (worker == nullptr || !worker->session || worker->incarnation != incarnation) return nullptr;
  return worker;
}

std::string Ledger::Label(const Worker& worker) const {
  const auto found = connected_names_.find(worker.hello.name());
  const size_t all = found == connected_names_.end() ? 0 : found->second;
  if (all <= (worker.session ? 1 : 0)) return worker.hello.name();
  return fmt::format("{} ({})", worker.hello.name(), worker.id.value().substr(0, 8));
}

std::string Ledger::Label(const StageRecord& stage) const {
  const Worker* worker = FindWorker(stage.worker);
  return fmt::format("worker {} ({})", worker == nullptr ? stage.name : Label(*worker),
                     ToString(stage.id));
}

void Ledger::DropMessage(Run& run, const Worker& worker, const v1::WorkerMessage& message,
                         std::string_view why) {
  if (++run.dropped > 1) return;
  Log(&run, "note",
      fmt::format("dropped a message of epoch {} from worker {}: {} (epoch {}); more of its kind "
                  "are counted",
                  message.epoch(), Label(worker), why, run.record.epoch.value()));
}

void Ledger::Connect(Worker& worker, SessionId session) {
  worker.session = session;
  sessions_[session] = worker.id;
  connected_.insert(&worker);
  ++connected_names_[worker.hello.name()];
}

void Ledger::Disconnect(Worker& worker) {
  const auto name = connected_names_.find(worker.hello.name());
  if (--name->second == 0) connected_names_.erase(name);
  connected_.erase(&worker);
  sessions_.erase(*worker.session);
  worker.session.reset();
}

void Ledger::CheckInvariants() const {
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
  }
  LH_CHECK(connected == sessions_.size(), "{} workers have sessions, {} sessions are known",
           connected, sessions_.size());
  LH_CHECK(connected == connected_.size(), "{} workers have sessions, {} are listed by name",
           connected, connected_.size());
  for (const auto& [id, run] : runs_) {
    LH_CHECK(id == run.record.id, "run {} is filed as {}", run.record.id.value(), id.value());
    LH_CHECK(!run.dirty, "a change of run {} was not written", id.value());
    LH_CHECK(active_.contains(run.order) != HasEnded(run.record.state),
             "run {} is {}, and is listed otherwise", id.value(), ToString(run.record.state));
    LH_CHECK(with_checkpoint_work_.contains(run.order) == HasCheckpointWork(run.record.spec),
             "run {} is not listed by the work on its checkpoints", id.value());
  }
}

}  // namespace longhaul::coordinator
