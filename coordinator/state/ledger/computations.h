// Plans and retunes take too long for a tick: another thread computes them, and an event brings the
// result. This class requests and cancels them. Results of cancelled computations are dropped.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "coordinator/state/ledger/ledger.h"

namespace longhaul::coordinator {

class Computations {
 public:
  explicit Computations(Ledger& ledger) : ledger_(ledger) {}

  // T is command::ComputePlan or command::ComputeRetune; its id is set here.
  template <class T>
  ComputationId Ask(T command) {
    command.id = ComputationId(next_++);
    const ComputationId id = command.id;
    ledger_.Do(std::move(command));
    return id;
  }
  // Cancels the computation, because its result is no longer needed.
  void Cancel(std::optional<ComputationId>& computation) {
    if (!computation) return;
    ledger_.Do(command::CancelComputation{*computation});
    computation.reset();
  }

 private:
  Ledger& ledger_;
  uint64_t next_ = 1;
};

}  // namespace longhaul::coordinator
