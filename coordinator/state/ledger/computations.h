// Requests and cancels computations that take too long for a tick: plans, and better settings for
// the plan of a running run (retunes). Another thread computes them. The result arrives as
// event::PlanComputed or event::RetuneComputed. Results of cancelled computations are dropped.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "coordinator/state/ledger/ledger.h"

namespace longhaul::coordinator {

class Computations {
 public:
  explicit Computations(Ledger& ledger) : ledger_(ledger) {}

  // Requests a computation and returns its id. T is command::ComputePlan or command::ComputeRetune;
  // `command.id` is set here.
  template <class T>
  ComputationId Ask(T command) {
    command.id = ComputationId(next_++);
    const ComputationId id = command.id;
    ledger_.Do(std::move(command));
    return id;
  }
  // Cancels the computation, if `computation` is set, and resets `computation`.
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
