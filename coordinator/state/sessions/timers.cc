#include "coordinator/state/sessions/timers.h"

#include <algorithm>

namespace longhaul::coordinator {

void SessionTimers::Begin(SessionId session) {
  if (const Worker* worker = ledger_.WorkerOf(session)) LookAgain(*worker);
}

// Not later than in a heartbeat interval: a worker may get a run with a shorter limit meanwhile.
void SessionTimers::LookAgain(const Worker& worker) {
  const MonoTime end = worker.last_heard + LimitOf(worker);
  looks_.emplace(std::min(end, ledger_.now() + ledger_.options().heartbeat_interval),
                 *worker.session);
}

std::vector<Worker*> SessionTimers::Silent() {
  std::vector<Worker*> silent;
  std::vector<Worker*> heard;
  while (!looks_.empty() && looks_.begin()->first <= ledger_.now()) {
    Worker* worker = ledger_.WorkerOf(looks_.begin()->second);
    looks_.erase(looks_.begin());
    if (worker == nullptr) continue;
    const bool is_silent = ledger_.now() - worker->last_heard >= LimitOf(*worker);
    (is_silent ? silent : heard).push_back(worker);
  }
  for (const Worker* worker : heard) LookAgain(*worker);
  return silent;
}

MonoTime SessionTimers::NextWake() const {
  return looks_.empty() ? MonoTime::max() : looks_.begin()->first;
}

absl::Duration SessionTimers::LimitOf(const Worker& worker) const {
  const Run* run = worker.held ? ledger_.FindRun(*worker.held) : nullptr;
  return run == nullptr ? ledger_.options().session_timeout : run->record.spec.session_timeout;
}

}  // namespace longhaul::coordinator
