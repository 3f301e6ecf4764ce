// Decides which workers runs may take. Leaves out workers whose process is about to end. Also
// leaves out, for a while, workers whose processes ended again and again by their own fault.
#pragma once

#include <string>

#include "coordinator/state/books/health_book.h"
#include "coordinator/state/ledger/ledger.h"

namespace longhaul::coordinator {

class Health {
 public:
  explicit Health(Ledger& ledger) : ledger_(ledger), book_(ledger.options().health) {}

  // Returns whether a run may take the worker: the worker is connected, not about to end, not
  // leaving, not left out, and either free or reserved by `run`. Null `run`: the worker must be
  // free.
  bool MayTake(const Worker& worker, const RunId* run = nullptr) const;
  bool IsLeftOut(const WorkerId& id) const {
    return book_.LeftOutUntil(id, ledger_.now()).has_value();
  }
  // For people: " (leaving)" or " (left out after 3 losses)"; "": the worker is not left out.
  std::string LeftOutText(const WorkerId& id) const;
  // Records that this process was lost by the worker's own fault, and logs an event if runs leave
  // the worker out because of this loss. `run`: the run for which the process worked; null: none.
  void NoteFault(const Run* run, const WorkerId& id, const Incarnation& incarnation,
                 HealthBook::Fault fault);
  // Leaves the worker out of all runs, until the coordinator is restarted, and logs an event.
  // `cause`: a sentence without its full stop.
  void Distrust(const Run& run, const WorkerId& id, const std::string& cause);
  // Takes a worker's report that its process is about to end by itself.
  void OnRestart(Worker& worker, const v1::WorkerMessage& message);
  // Call this when a checkpoint is committed in which the worker had a part. The count of the
  // worker's losses restarts at 0.
  void DidWell(const WorkerId& id) { book_.DidWell(id); }
  void Forget(const WorkerId& id) { book_.Forget(id); }

  const HealthBook& book() const { return book_; }
  MonoTime NextWake() const { return book_.NextWake(ledger_.now()); }

 private:
  Ledger& ledger_;
  HealthBook book_;
};

}  // namespace longhaul::coordinator
