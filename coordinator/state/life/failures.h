// Ends an epoch before its time: the run fails, or it is interrupted and begins again, unless that
// was tried too often. Keeps a suspicion while a better explanation may still arrive.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "coordinator/state/ledger/ledger.h"
#include "coordinator/state/ledger/moves.h"

namespace longhaul::coordinator {

// How long to wait for the cause when a stage only reports that a neighbour is gone, or is gone
// itself; or for the other stages' reports when a loss is not finite.
inline constexpr absl::Duration kCausePatience = absl::Seconds(1);

// Why the run is about to be interrupted.
struct Suspicion {
  std::string sentence;
  MonoTime until;
  // The stage that a neighbour reports as gone. nullopt: a worker came back without its stage.
  std::optional<CellId> missing = std::nullopt;
  std::optional<CellId> accuser = std::nullopt;  // the reporting neighbour
};

// A loss or gradient norm that is not finite. Reports of the other stages show where it began.
struct NonFinite {
  uint64_t step = 0;
  std::string what;  // "the loss became nan"
  MonoTime until;
};

// The waiting times of an interrupted run.
struct Pause {
  MonoTime since;       // the interruption
  MonoTime not_before;  // the run begins again, in place or from the queue
  MonoTime until;       // how long it waits for its former workers
};

class Failures : public MoveListener {
 public:
  Failures(Ledger& ledger, Moves& moves) : ledger_(ledger), moves_(moves) {}

  // Fails the run. `cause` is a sentence without its full stop.
  void Fail(Run& run, const std::string& cause);
  // Interrupts the epoch; the run goes on, unless that was tried too often. `is_error`: a stage
  // reported `cause`, and may report it again.
  void Interrupt(Run& run, std::string cause, bool is_error = false);
  // The same for an unfinished plan: the run goes back to the queue.
  void InterruptPlanning(Run& run, const std::string& cause);
  // Ends the epoch after `step`, at which every stage has stopped and whose checkpoint is
  // committed, so that the run continues with another number of replicas.
  void EndForResize(Run& run, uint64_t step);

  void Suspect(const Run& run, Suspicion suspicion);
  const std::optional<Suspicion>& suspicion(const Run& run) const { return of_.Of(run).suspicion; }
  // The first report of an epoch counts.
  void NoteNonFinite(const Run& run, NonFinite nonfinite);
  void NoteNonFiniteValue(const Run& run, uint64_t step, const CellId& cell);
  const std::optional<NonFinite>& nonfinite(const Run& run) const { return of_.Of(run).nonfinite; }
  // Whether the run waits for the cause of a failure or interruption.
  bool AwaitsCause(const Run& run) const { return suspicion(run) || nonfinite(run); }

  const Pause& PauseOf(const Run& run) const { return of_.Of(run).pause; }
  void WaitAtLeastUntil(const Run& run, MonoTime until);
  // Gives the run's workers time to come back after a restart of the coordinator.
  void Restart(const Run& run);
  MonoTime NextWake(const Run& run) const;

  void OnMove(Run& run, const Transition& row) override;
  void OnRemove(const RunId& id) override { of_.Forget(id); }

 private:
  // A step that no earlier epoch had finished resets the count of attempts.
  void NoteProgress(Run& run);
  // Counts an attempt. False: there were too many, and the run has failed.
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
