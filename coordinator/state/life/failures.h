// Ends an epoch (one attempt to train a run) early: the run fails, or it is interrupted and begins
// the next epoch. A run fails if it was interrupted too often without a new step. A suspected cause
// is kept for a moment, because a report that explains more may still arrive.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "coordinator/state/ledger/ledger.h"
#include "coordinator/state/ledger/moves.h"

namespace longhaul::coordinator {

// How long to wait for a better explanation after a stage has reported that a neighbour is gone, or
// after a worker has come back without its stage. Also how long to wait for the other stages'
// reports if a loss or gradient norm is not finite.
inline constexpr absl::Duration kCausePatience = absl::Seconds(1);

// Why the run is about to be interrupted.
struct Suspicion {
  std::string sentence;  // the cause, if no better explanation arrives before `until`
  MonoTime until;
  // The stage that a neighbour reports as gone. nullopt: a worker came back without its stage.
  std::optional<CellId> missing = std::nullopt;
  std::optional<CellId> accuser = std::nullopt;  // the reporting neighbour
};

// A loss or gradient norm that is not finite. Reports of the other stages show in which stage a
// non-finite value appeared first.
struct NonFinite {
  uint64_t step = 0;
  std::string what;  // "the loss became nan"
  MonoTime until;    // end of the wait for the other stages' reports
};

// The waiting times of an interrupted run.
struct Pause {
  MonoTime since;       // time of the interruption
  MonoTime not_before;  // earliest time at which the run begins again
  MonoTime until;       // end of the wait for the run's former workers
};

class Failures : public MoveListener {
 public:
  Failures(Ledger& ledger, Moves& moves) : ledger_(ledger), moves_(moves) {}

  // Fails the run. `cause` is a sentence for people without its full stop. If a loss or norm was
  // not finite, the run's reason names this value and its step instead.
  void Fail(Run& run, const std::string& cause);
  // Interrupts the epoch, so that the run begins again. Fails the run instead if a user has asked
  // for its end, if a loss or norm is not finite, or after too many attempts (recovery.attempts).
  // `is_error`: a stage reported the error `cause`. If the previous interruption had the same
  // error, the run fails, too.
  void Interrupt(Run& run, const std::string& cause, bool is_error = false);
  // Sends a run that is being planned back to the queue, or fails it after too many attempts.
  void InterruptPlanning(Run& run, const std::string& cause);
  // Ends the epoch, so that the run continues with another number of replicas, or with another
  // worker in place of one that is leaving. Every stage must
  // have stopped; `step` is the last step that all stages finished.
  void EndForResize(Run& run, uint64_t step);

  // Notes a suspicion, in place of an earlier suspicion. At suspicion.until, Stages interrupts the
  // run.
  void Suspect(const Run& run, Suspicion suspicion);
  const std::optional<Suspicion>& suspicion(const Run& run) const { return of_.Of(run).suspicion; }
  // Notes a loss or norm that is not finite. Steps and Stages fail the run when all stages have
  // reported the step, at nonfinite.until at the latest. Only the first note of an epoch counts.
  void NoteNonFinite(const Run& run, NonFinite nonfinite);
  // Notes that a value was not finite in this cell (one stage of one replica). Of an epoch's notes,
  // the earliest step counts, and in this step the first cell.
  void NoteNonFiniteValue(const Run& run, uint64_t step, const CellId& cell);
  const std::optional<NonFinite>& nonfinite(const Run& run) const { return of_.Of(run).nonfinite; }
  // Returns whether the run waits for the cause of a failure or interruption.
  bool AwaitsCause(const Run& run) const { return suspicion(run) || nonfinite(run); }

  const Pause& PauseOf(const Run& run) const { return of_.Of(run).pause; }
  // Moves Pause::until to `until`, if Pause::until is earlier.
  void WaitAtLeastUntil(const Run& run, MonoTime until);
  // Gives the run's workers time to come back after a restart of the coordinator.
  void Restart(const Run& run);
  // Returns when the next of the run's waits ends; MonoTime::max(): the run waits for nothing here.
  MonoTime NextWake(const Run& run) const;

  void OnMove(Run& run, const Transition& row) override;
  void OnRemove(const RunId& id) override { of_.Forget(id); }

 private:
  // Resets the count of attempts if the epoch has finished a step that no earlier epoch had.
  void NoteProgress(Run& run);
  // Counts an attempt. False: the run has failed, because there were too many, or the same error
  // came twice in a row.
  bool CountAttempt(Run& run, const std::string& cause, const std::string& error);
  std::string NonFiniteSentence(const Run& run) const;

  struct OfRun {
    std::optional<Suspicion> suspicion;
    std::optional<NonFinite> nonfinite;
    // The step and the cell where a non-finite value appeared first.
    std::optional<std::pair<uint64_t, CellId>> first_nonfinite;
    Pause pause;
  };

  Ledger& ledger_;
  Moves& moves_;
  PerRun<OfRun> of_;
};

}  // namespace longhaul::coordinator
