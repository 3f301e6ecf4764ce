// Adds and removes data-parallel replicas between steps. A lost worker, a returned worker and a
// user's request are handled alike: the run stops, and continues from a checkpoint with another
// number of replicas (crews.h, planner/resize.h). After a loss, this checkpoint is the run's
// newest. Otherwise the run writes a checkpoint for this purpose after the current step.
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

  // Replies to `longhaul replicas`. kNotFound: no such run. kFailedPrecondition: the run has ended,
  // or cannot change its number of replicas. Other errors: those of ParseRunSpec.
  void On(event::ReplicasAsked& asked);
  // Makes runs that can train with another number of replicas stop after the current step. Leaves a
  // run alone until all its stages are connected and have finished a step of the present epoch
  // (attempt). Call this in every tick.
  void Advance();

 private:
  StatusOr<v1::ReplicasReply> Set(const event::ReplicasAsked& asked);
  // Returns whether the spares in `crew` have timed their layers, and so have loaded what a stage
  // needs. Then the other workers need not wait for the spares.
  bool AreWarm(const Run& run, const Crew& crew) const;

  Ledger& ledger_;
  Moves& moves_;
  const Failures& failures_;
  Spares& spares_;
  Crews& crews_;
};

}  // namespace longhaul::coordinator
