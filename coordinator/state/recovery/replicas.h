// Adds and removes replicas between steps. A loss, a return and a user's request are handled alike:
// the run stops at a whole checkpoint, and its next epoch has another number of replicas (crews.h,
// planner/resize.h). After a loss this is the newest checkpoint; else one that the run writes for
// this purpose after the current step.
#pragma once

#include "base/status.h"
#include "coordinator/state/events.h"
#include "coordinator/state/ledger/ledger.h"
#include "coordinator/state/ledger/moves.h"
#include "coordinator/state/life/failures.h"
#include "coordinator/state/recovery/crews.h"
#include "coordinator/state/workers/spares.h"

namespace longhaul::coordinator {

class Replicas {
 public:
  Replicas(Ledger& ledger, Moves& moves, const Failures& failures, Spares& spares, Crews& crews)
      : ledger_(ledger), moves_(moves), failures_(failures), spares_(spares), crews_(crews) {}

  // `longhaul replicas`.
  void On(event::ReplicasAsked& asked);
  // Runs that could train with another number of replicas stop for that, where all stages are there
  // to hear of it and have trained since they began.
  void Advance();

 private:
  StatusOr<v1::ReplicasReply> Set(const event::ReplicasAsked& asked);
  // Whether new workers have loaded and timed what they need, so that the others need not wait for
  // them.
  bool AreWarm(const Run& run, const Crew& crew) const;

  Ledger& ledger_;
  Moves& moves_;
  const Failures& failures_;
  Spares& spares_;
  Crews& crews_;
};

}  // namespace longhaul::coordinator
