// Submitted runs wait for workers, first come first served, except that a run whose workers are
// connected overtakes one that still waits for some. `longhaul plan` does not wait.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "coordinator/state/events.h"
#include "coordinator/state/ledger/ledger.h"
#include "coordinator/state/ledger/moves.h"
#include "coordinator/state/life/failures.h"
#include "coordinator/state/planning/planning.h"
#include "coordinator/state/planning/worker_choice.h"
#include "coordinator/state/workers/worker_links.h"

namespace longhaul::coordinator {

class Queue {
 public:
  Queue(Ledger& ledger, Moves& moves, const Failures& failures, const WorkerLinks& links,
        const WorkerChoice& choice, Planning& planning)
      : ledger_(ledger),
        moves_(moves),
        failures_(failures),
        links_(links),
        choice_(choice),
        planning_(planning) {}

  void On(event::Submitted& submitted);
  void On(event::PlanAsked& asked);

  // Submits held submissions again.
  void SubmitHeld();
  // Plans runs whose workers are connected.
  void Advance();
  // Answers the submissions of this tick.
  void Answer();
  MonoTime NextWake() const;

  // A submission that is held because some of the workers that it would get are trying to reach
  // each other.
  struct Held {
    event::Submitted submitted;
    MonoTime until;
  };
  const std::vector<Held>& held() const { return held_; }
  // Whether the run was submitted in this tick and its caller has no answer yet.
  bool Owes(const RunId& run) const;
  void CheckInvariants() const;

 private:
  // The submission waits until `until` for workers who try to reach each other.
  void Submit(event::Submitted submitted, MonoTime until);
  StatusOr<Run*> NewRun(event::Submitted& submitted, bool may_wait);
  StatusOr<Run*> ResumeRun(event::Submitted& submitted, bool may_wait,
                           std::vector<std::string>* notes);
  void Plan(Run& run, uint64_t step, uint32_t replicas, const Candidates& candidates);

  struct Pending {
    RequestId request;
    RunId run;
    uint64_t resume_step = 0;
    std::vector<std::string> notes;
  };

  Ledger& ledger_;
  Moves& moves_;
  const Failures& failures_;
  const WorkerLinks& links_;
  const WorkerChoice& choice_;
  Planning& planning_;
  std::vector<Pending> pending_;
  std::vector<Held> held_;  // in their order
};

}  // namespace longhaul::coordinator
