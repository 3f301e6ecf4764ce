// Decides which workers runs may take: workers that are not about to end, and not left out because
// their processes ended again and again by their own fault.
#pragma once

#include <string>

#include "coordinator/state/books/health_book.h"
#include "coordinator/state/ledger/ledger.h"

namespace longhaul::coordinator {

class Health {
 public:
  explicit Health(Ledger& ledger) : ledger_(ledger), book_(ledger.options().health) {}

  // True if the worker is connected, not reserved or reserved by `run` (may be null), and neither
  // about to end nor left out.
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
  // The worker reports that its process ends by itself.
  void OnRestart(Worker& worker, const v1::WorkerMessage& message);
  // The worker had a part in a checkpoint that can no longer be lost.
  void DidWell(const WorkerId& id) { book_.DidWell(id); }
  void Forget(const WorkerId& id) { book_.Forget(id); }

  const HealthBook& book() const { return book_; }
  MonoTime NextWake() const { return book_.NextWake(ledger_.now()); }

 private:
  Ledger& ledger_;
  HealthBook book_;
};

}  // namespace longhaul::coordinator
