// Handles the sessions (gRPC streams) of workers, which connect, leave, and come back. A worker
// that connects may have a part in a run, or in a request to plan. The run or request then reserves
// the worker, and the worker gets again the commands that it may have missed.
#pragma once

#include <optional>
#include <string>

#include "coordinator/state/events.h"
#include "coordinator/state/ledger/ledger.h"
#include "coordinator/state/life/stages.h"
#include "coordinator/state/planning/planning.h"
#include "coordinator/state/queries/samples.h"
#include "coordinator/state/recovery/departures.h"
#include "coordinator/state/sessions/timers.h"
#include "coordinator/state/shards/copies.h"
#include "coordinator/state/shards/shards.h"
#include "coordinator/state/workers/health.h"
#include "coordinator/state/workers/worker_links.h"

namespace longhaul::coordinator {

class Sessions {
 public:
  Sessions(Ledger& ledger, Health& health, WorkerLinks& links, Stages& stages, Planning& planning,
           Shards& shards, Copies& copies, const Samples& samples, Departures& departures)
      : ledger_(ledger),
        health_(health),
        links_(links),
        stages_(stages),
        planning_(planning),
        shards_(shards),
        copies_(copies),
        samples_(samples),
        departures_(departures) {}

  // Refuses (v1::Reject) a worker of another protocol version or with an invalid hello message, and
  // an older process of a worker that already has a newer process.
  void On(event::WorkerJoined& joined);
  void On(event::WorkerLeft& left);
  // Ends the sessions of workers that were silent for too long.
  void CheckTimers();
  MonoTime NextWake() const { return timers_.NextWake(); }

 private:
  std::optional<std::string> RefusalOf(const v1::Hello& hello) const;
  void RefuseTwin(const Worker& worker, const event::WorkerJoined& joined);
  void Refuse(SessionId session, const std::string& refusal);
  // Updates the worker's record from its hello message. True: the worker has a new process.
  bool Renew(Worker& worker, const event::WorkerJoined& joined);
  void SendWelcome(const Worker& worker);
  void NoteSeenChange(const Worker& worker);
  void NoteClock(Worker& worker, bool is_new);
  // Finds the run or request in which this worker process has a part, and repeats commands that the
  // worker may have missed.
  void Attach(Worker& worker);
  // The session has ended. `for_good`: this worker process will not come back.
  void Lose(Worker& worker, const std::string& why, bool for_good = false);
  void ForgetOldWorkers();

  Ledger& ledger_;
  Health& health_;
  WorkerLinks& links_;
  Stages& stages_;
  Planning& planning_;
  Shards& shards_;
  Copies& copies_;
  const Samples& samples_;
  Departures& departures_;
  SessionTimers timers_{ledger_};
  bool said_put_back_ = false;  // an event says that these records are from an older copy
};

}  // namespace longhaul::coordinator
