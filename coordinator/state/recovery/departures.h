// Workers that are leaving: their process has said that it ends soon (v1::Leaving), for example
// because a cloud takes the machine back. A run with a stage there stops after the step under way,
// with a checkpoint, and goes on from there with another worker, which gets the shards from the one
// that leaves: no step is repeated. Where no worker is free, the checkpoint is copied to another
// one. If there is no time for either, the run goes on from its newest copies. When no run needs a
// leaving worker, it is told that it may go (v1::MayLeave).
//
// Stopping, choosing workers and moving shards are the mechanisms that replicas and recovery use
// (replicas.h, recovery.h). No other run, copy or spare takes a leaving worker (health.h).
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "coordinator/state/ledger/ledger.h"
#include "coordinator/state/ledger/moves.h"
#include "coordinator/state/life/failures.h"
#include "coordinator/state/life/steps.h"
#include "coordinator/state/recovery/crews.h"
#include "coordinator/state/shards/copies.h"
#include "coordinator/state/shards/shards.h"

namespace longhaul::coordinator {

class Departures {
 public:
  Departures(Ledger& ledger, Moves& moves, const Failures& failures, const Steps& steps,
             const Shards& shards, Copies& copies, Crews& crews)
      : ledger_(ledger),
        moves_(moves),
        failures_(failures),
        steps_(steps),
        shards_(shards),
        copies_(copies),
        crews_(crews) {}

  // A worker has said that it is leaving, in its hello or later. Saying it again changes nothing.
  void On(Worker& worker, const v1::Leaving& leaving);
  // Makes runs go on elsewhere, and tells workers that may go. Call this in every tick, after
  // Recovery and Spares.
  void Advance();

 private:
  void Advance(Worker& worker);
  // Stops the run, if its stage on the leaving worker can go elsewhere in time.
  void Stop(Run& run, const StageRecord& stage, Worker& worker);
  // What a move of the stage takes: the step under way, and its state over the line to the worker
  // that takes its place; null: to any other.
  absl::Duration TimeToMove(const Run& run, const StageRecord& stage, const Worker& from,
                            const Worker* to) const;
  uint64_t StateBytesOf(const Run& run, const StageRecord& stage) const;
  // Returns the step of the newest checkpoint that is whole without the leaving workers; 0: none.
  uint64_t NewestElsewhere(const Run& run) const;
  // Has the newest checkpoints' files copied that nobody has who stays. True: some are under way.
  bool SaveFiles(const Worker& worker);
  void LetGo(Worker& worker);

  Ledger& ledger_;
  Moves& moves_;
  const Failures& failures_;
  const Steps& steps_;
  const Shards& shards_;
  Copies& copies_;
  Crews& crews_;
  std::set<WorkerId> leaving_;
  // The checkpoints whose files a leaving worker was asked to send once.
  std::map<WorkerId, std::set<std::pair<RunId, uint64_t>>> saved_;
};

}  // namespace longhaul::coordinator
