// How an epoch ends before its time: the run fails, or it is interrupted and begins again, unless
// that was tried too often. Keeps what is suspected while a better explanation may be under way.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "coordinator/state/ledger/ledger.h"
#include "coordinator/state/ledger/moves.h"

namespace longhaul::coordinator {

// How long to wait for the cause when a stage only says that a neighbour is gone, or is gone
// itself; or for the other stages' reports when a loss is not finite.
inline constexpr absl::Duration kCausePatience = absl::Seconds(1);

// Why the run is about to be interrupted.
struct Suspicion {
  std::string sentence;
  MonoTime until;
  // The stage that a neighbour says is gone. nullopt: a worker came back without its stage.
  std::optional<CellId> missing = std::nullopt;
  std::optional<CellId> accuser = std::nullopt;  // that neighbour
};

// A loss or gradient norm that is not finite. Reports of the other stages say where it began.
struct NonFinite {
  uint64_t step = 0;
  std::string what;  // "the loss became nan"
  MonoTime until;
};

// When a run begins again after an interruption.
struct Pause {
  MonoTime since;       // the interruption
  MonoTime not_before;  // the run begins again, in place or from the queue
  MonoTime until;       // how long it waits for the workers that it had
};

class Failures : public MoveListener {
 public:
  Failures(Ledger& ledger, Moves& moves) : ledger_(ledger), moves_(moves) {}

  // The run fails. `cause` is a sentence without its full stop.
  void Fail(Run& run, const std::string& cause);
  // The epoch cannot go on; the run can, unless that was tried too often. `is_error`: a stage
  // reported `cause`, and may report it again.
  void Interrupt(Run& run, std::string cause, bool is_error = false);
  // The same for a plan in the making: the run goes back to the queue.
  void InterruptPlanning(Run& run, const std::string& cause);
  // Every stage has stopped after `step`, whose checkpoint is committed, so that the run goes on
  // with another number of replicas.
  void EndForResize(Run& run, uint64_t step);

  void Suspect(const Run& run, Suspicion suspicion);
  const std::optional<Suspicion>& suspicion(const Run& run) const { return of_.Of(run).suspicion; }
  // The first one of an epoch counts.
  void NoteNonFinite(const Run& run, NonFinite nonfinite);
  void NoteNonFiniteValue(const Run& run, uint64_t step, const CellId& cell);
  const std::optional<NonFinite>& nonfinite(const Run& run) const { return of_.Of(run).nonfinite; }
  // The run waits for the cause of a failure or interruption.
  bool AwaitsCause(const Run& run) const { return suspicion(run) || nonfinite(run); }

  const Pause& PauseOf(const Run& run) const { return of_.Of(run).pause; }
  void WaitAtLeastUntil(const Run& run, MonoTime until);
  // The coordinator restarted: workers of the run have time to come back.
  void Restart(const Run& run);
  MonoTime NextWake(const Run& run) const;

  void OnMove(Run& run, const Transition& row) override;
  void OnRemove(const RunId& id) override { of_.Forget(id); }

 private:
  // A step that no epoch had finished before ends a row of attempts.
  void NoteProgress(Run& run);
  // Counts an attempt. False: there were too many, and the run has failed.
  bool CountAttempt(Run& run, const std::string& cause, const std::string& error);
  std::string NonFiniteSentence(const Run& run) const;

  struct OfRun {
    std::optional<Suspicion> suspicion;
    std::optional<NonFinite> nonfinite;
    // The step and the cell where a value that is not finite appeared first.
    std::optional<std::pair<uint64_t, CellId>> first_nonfinite;
    Pause pause;
  };

  Ledger& ledger_;
  Moves& moves_;
  PerRun<OfRun> of_;
};

}  // namespace longhaul::coordinator
