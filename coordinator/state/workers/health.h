// Decides which workers runs may take. Leaves out workers whose process is about to end, and for a
// while those whose processes ended again and again by their own fault.
#pragma once

#include <string>

#include "coordinator/state/books/health_book.h"
#include "coordinator/state/ledger/ledger.h"

namespace longhaul::coordinator {

class Health {
 public:
  explicit Health(Ledger& ledger) : ledger_(ledger), book_(ledger.options().health) {}

  // Returns whether a run may take the worker. It must be connected, neither about to end nor left
  // out, and not reserved, except by `run` (may be null).
  bool MayTake(const Worker& worker, const RunId* run = nullptr) const;
  bool IsLeftOut(const WorkerId& id) const {
    return book_.LeftOutUntil(id, ledger_.now()).has_value();
  }
  // " (left out after 3 losses)", or "".
  std::string LeftOutText(const WorkerId& id) const;
  // Records that this process was lost by the worker's own fault while it worked for `run` (may be
  // null).
  void NoteFault(const Run* run, const WorkerId& id, const Incarnation& incarnation,
                 HealthBook::Fault fault);
  // Takes a worker's report that its process is about to end by itself.
  void OnRestart(Worker& worker, const v1::WorkerMessage& message);
  // A checkpoint was committed in which the worker had a part.
  void DidWell(const WorkerId& id) { book_.DidWell(id); }
  void Forget(const WorkerId& id) { book_.Forget(id); }

  const HealthBook& book() const { return book_; }
  MonoTime NextWake() const { return book_.NextWake(ledger_.now()); }

 private:
  Ledger& ledger_;
  HealthBook book_;
};

}  // namespace longhaul::coordinator
