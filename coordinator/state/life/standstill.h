// Detects runs that stand still although all their workers are connected and no link reports
// trouble. A worker detects by itself that a thread of its stage is stuck; this class covers other
// causes.
#pragma once

#include "coordinator/state/ledger/ledger.h"
#include "coordinator/state/ledger/moves.h"
#include "coordinator/state/life/failures.h"
#include "coordinator/state/life/link_troubles.h"
#include "coordinator/state/life/steps.h"

namespace longhaul::coordinator {

class Standstill : public MoveListener {
 public:
  Standstill(Ledger& ledger, Failures& failures, const LinkTroubles& troubles, const Steps& steps)
      : ledger_(ledger), failures_(failures), troubles_(troubles), steps_(steps) {}

  // Notes that a stage of the run has done a piece of work.
  void NoteProgress(const Run& run) { progressed_at_[run] = ledger_.now(); }
  // Takes a heartbeat's report of what the worker's stage does. Notes progress of the run if the
  // stage has done more work since the previous heartbeat.
  void NoteAtHand(Worker& worker, const v1::AtHand& at_hand);
  // Interrupts the run and returns true, if the run stood still for too long
  // (StateOptions::progress_timeout). Call this in every tick. Workers' heartbeats cause ticks
  // often enough, so no timer is needed.
  bool Check(Run& run);

  void OnMove(Run& run, const Transition& /*row*/) override { NoteProgress(run); }
  void OnRemove(const RunId& id) override { progressed_at_.Forget(id); }

 private:
  absl::Duration Limit(const Run& run) const;
  // Returns whether something explains the standstill, or shows that work goes on.
  bool IsExcused(const Run& run) const;

  Ledger& ledger_;
  Failures& failures_;
  const LinkTroubles& troubles_;
  const Steps& steps_;
  PerRun<MonoTime> progressed_at_;
};

}  // namespace longhaul::coordinator
