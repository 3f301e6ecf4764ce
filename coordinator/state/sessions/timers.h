// When the sessions of silent workers end. Looks at a session when it may be due, and at least once
// in a heartbeat interval, rather than at all sessions in each tick.
#pragma once

#include <set>
#include <utility>
#include <vector>

#include "coordinator/state/ledger/ledger.h"

namespace longhaul::coordinator {

class SessionTimers {
 public:
  explicit SessionTimers(Ledger& ledger) : ledger_(ledger) {}

  // Call it when a session begins.
  void Begin(SessionId session);
  // Returns the connected workers that were silent for too long.
  std::vector<Worker*> Silent();
  MonoTime NextWake() const;
  // How long the worker may be silent. A worker with a run has the run's limit.
  absl::Duration LimitOf(const Worker& worker) const;

 private:
  void LookAgain(const Worker& worker);

  Ledger& ledger_;
  // When to look at which session. The session may have ended meanwhile.
  std::set<std::pair<MonoTime, SessionId>> looks_;
};

}  // namespace longhaul::coordinator
