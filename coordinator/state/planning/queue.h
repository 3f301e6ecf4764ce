// Submitted runs wait here for workers, first come first served. But a run whose workers are all
// connected overtakes runs that still wait for workers. `longhaul plan` does not wait: if workers
// are missing, the reply is kFailedPrecondition.
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

  // Makes or resumes a run. Answer sends the reply, unless the submission fails at once or is held.
  void On(event::Submitted& submitted);
  void On(event::PlanAsked& asked);

  // Tries all held submissions again. Call SubmitHeld, Advance and Answer in every tick.
  void SubmitHeld();
  // Begins to plan the queued runs whose workers are connected.
  void Advance();
  // Answers the submissions that became runs in this tick.
  void Answer();
  MonoTime NextWake() const;

  // A submission that is not a run yet, because the workers that the run would get are still trying
  // to reach each other.
  struct Held {
    event::Submitted submitted;
    MonoTime until;  // end of the wait
  };
  const std::vector<Held>& held() const { return held_; }
  // Returns whether the run was submitted in this tick and its caller has no answer yet.
  bool Owes(const RunId& run) const;
  void CheckInvariants() const;

 private:
  // Makes or resumes the run. But before `until`, holds the submission if workers are still trying
  // to reach each other.
  void Submit(event::Submitted submitted, MonoTime until);
  // Checks that there is room for one more run of the submitter, with `bytes` of run file and
  // names.
  Status CheckRoom(const Submitter& by, uint64_t bytes) const;
  StatusOr<Run*> NewRun(event::Submitted& submitted, bool may_wait,
                        std::vector<std::string>* notes);
  // Returns what a run that begins from another run's checkpoint goes on from
  // (begun_elsewhere.h), and settles in `submitted` what that run had settled.
  StatusOr<RunRecord> Elsewhere(event::Submitted& submitted, std::vector<std::string>* notes) const;
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
  std::vector<Held> held_;  // in the order of submission
};

}  // namespace longhaul::coordinator
