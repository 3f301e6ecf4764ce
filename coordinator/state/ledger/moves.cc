#include "coordinator/state/ledger/moves.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace longhaul::coordinator {

bool EndsEpoch(const Transition& row) {
  return row.trigger == Trigger::kInterrupted || row.trigger == Trigger::kResized ||
         row.trigger == Trigger::kResumed;
}

void Moves::Move(Run& run, Trigger trigger, const std::string& reason, const std::string& text) {
  RunRecord& record = run.record;
  const Transition* row = FindTransition(record.state, trigger);
  LH_CHECK(row != nullptr, "run {} is {}, where '{}' means nothing", record.id.value(),
           ToString(record.state), ToString(trigger));
  record.state = row->to;
  ledger_.NoteState(run);
  if (row->to == RunState::kRecovering) ledger_.Count(FaultKind::kRunInterrupted);
  if (row->to == RunState::kFailed) ledger_.Count(FaultKind::kRunFailed);
  record.reason = reason;
  if (row->to != RunState::kFinishing) record.resize_asked = false;
  run.waiting.clear();
  if (row->to == RunState::kPreparing) run.workers_lost.clear();  // they were the epoch before's
  if (row->to == RunState::kRunning && record.started_unix_ms == 0) {
    record.started_unix_ms = ledger_.unix_ms();
  }
  for (MoveListener* listener : listeners_) listener->OnMove(run, *row);
  if (HasEnded(row->to)) {
    record.ended_unix_ms = std::max<int64_t>(ledger_.unix_ms(), 1);
    if (run.dropped > 1) {
      ledger_.Log(&run, "note", "{} messages that did not belong to its epoch were dropped",
                  run.dropped);
    }
  }
  ledger_.Store(run);
  const std::string& more = text.empty() ? reason : text;
  ledger_.Log(&run, "state",
              more.empty() ? std::string(ToString(row->to))
                           : fmt::format("{}: {}", ToString(row->to), more));
  if (row->action == Action::kAbort || row->action == Action::kAbortAndRelease) Abort(run, reason);
  if (row->action == Action::kAbortAndRelease) Release(run);
  for (MoveListener* listener : listeners_) listener->Act(run, row->action);
}

void Moves::Remove(const RunId& id) {
  for (MoveListener* listener : listeners_) listener->OnRemove(id);
  if (const Run* run = ledger_.FindRun(id)) ledger_.NoteRemoved(*run);
  ledger_.runs().erase(id);
  ledger_.ListChanged();
}

void Moves::Abort(const Run& run, const std::string& reason) {
  for (const auto& [id, worker] : ledger_.workers()) {
    if (worker.held != run.record.id || !worker.session) continue;
    ledger_.SendAbort(worker, run.record.id, run.record.epoch,
                      reason.empty() ? "every stage has finished" : reason, reason.empty());
  }
}

void Moves::Release(const Run& run) {
  for (auto& [id, worker] : ledger_.workers()) {
    if (worker.held == run.record.id) worker.held.reset();
  }
}

}  // namespace longhaul::coordinator
