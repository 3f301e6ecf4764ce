// Follows the stages of a run's present epoch (attempt): stages become ready, end, report errors,
// and their workers leave and come back. Also carries out `longhaul stop`.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "coordinator/state/events.h"
#include "coordinator/state/ledger/ledger.h"
#include "coordinator/state/ledger/moves.h"
#include "coordinator/state/life/failures.h"
#include "coordinator/state/life/link_troubles.h"
#include "coordinator/state/life/standstill.h"
#include "coordinator/state/life/tuning.h"
#include "coordinator/state/workers/health.h"
#include "coordinator/state/workers/orders.h"

namespace longhaul::coordinator {

class Stages : public MoveListener {
 public:
  Stages(Ledger& ledger, Moves& moves, Failures& failures, Health& health, Orders& orders,
         LinkTroubles& troubles, Standstill& standstill, Tuning& tuning)
      : ledger_(ledger),
        moves_(moves),
        failures_(failures),
        health_(health),
        orders_(orders),
        troubles_(troubles),
        standstill_(standstill),
        tuning_(tuning) {}

  // ---- Reports of stages
  void OnReady(Run& run, StageRecord& stage, const v1::StageReady& ready);
  void OnFinished(Run& run, StageRecord& stage, const v1::StageFinished& finished);
  void OnError(Run& run, StageRecord& stage, const v1::RunError& error);
  // Replies in this tick. kNotFound: no such run.
  void On(event::StopAsked& asked);

  // ---- Sessions of their workers
  // Call this when the stage's worker has a new session. Sends the commands that the worker may
  // have missed.
  void Attach(Worker& worker, Run& run, StageRecord& stage);
  // Call this when the session of the stage's worker has ended. The worker keeps its stage for a
  // while, because training continues without the coordinator.
  void Detach(Run& run, StageRecord& stage, const std::string& why);
  // Call this when the stage's worker process is gone for good. Interrupts the run, unless the
  // stage has finished.
  void OnLost(Run& run, StageRecord& stage, const std::string& why);
  // Detaches all stages of a run, because the coordinator has restarted and no worker is back yet.
  void DetachAll(Run& run);

  // ---- Time
  // Fails or interrupts the run if one of its time limits is over. Call this in every tick.
  void CheckTimers(Run& run);
  // MonoTime::max(): no time limit runs.
  MonoTime NextWake(const Run& run) const;

  void OnMove(Run& run, const Transition& row) override;
  void OnRemove(const RunId& id) override { ready_until_.Forget(id); }
  void CheckInvariants(const Run& run) const;

 private:
  void BeginIfAllReady(Run& run);
  StatusOr<v1::StopReply> Stop(const event::StopAsked& asked);
  void Reattach(Run& run, StageRecord& stage);
  // Puts the worker's newly reported addresses into the plan. Tells the workers that dial this
  // worker the new addresses.
  void NoteAddresses(const Worker& worker, Run& run, const StageRecord& stage);
  // Returns when a detached stage counts as dead; nullopt: nothing shows that it is dead.
  std::optional<MonoTime> DeadAt(const Run& run, const StageRecord& stage) const;
  // True: a detached stage is lost by now, and the run was interrupted.
  bool CheckDetached(Run& run);

  Ledger& ledger_;
  Moves& moves_;
  Failures& failures_;
  Health& health_;
  Orders& orders_;
  LinkTroubles& troubles_;
  Standstill& standstill_;
  Tuning& tuning_;
  PerRun<std::optional<MonoTime>> ready_until_;  // preparing: all stages must be ready by then
};

}  // namespace longhaul::coordinator
