// Continues a run after a loss: a worker that died, a link that could not be restored, or an error
// of a stage. The next epoch (attempt) first keeps the run's split of layers. This epoch begins
// from the newest undamaged checkpoint as soon as every cell (stage of one replica) has a worker:
// the old worker, a new process of the old worker, or another worker (crews.h). Workers that
// were not lost keep their processes, and go back to this checkpoint. If this epoch fails, too, or
// a worker stays away, the run is planned anew.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "coordinator/state/ledger/ledger.h"
#include "coordinator/state/ledger/moves.h"
#include "coordinator/state/life/failures.h"
#include "coordinator/state/life/stages.h"
#include "coordinator/state/life/tuning.h"
#include "coordinator/state/recovery/crews.h"
#include "coordinator/state/shards/shards.h"
#include "coordinator/state/workers/health.h"
#include "coordinator/state/workers/spares.h"

namespace longhaul::coordinator {

class Recovery : public MoveListener {
 public:
  Recovery(Ledger& ledger, Moves& moves, Failures& failures, const Health& health, Spares& spares,
           Shards& shards, Stages& stages, Tuning& tuning, Crews& crews)
      : ledger_(ledger),
        moves_(moves),
        failures_(failures),
        health_(health),
        spares_(spares),
        shards_(shards),
        stages_(stages),
        tuning_(tuning),
        crews_(crews) {}

  // Call this once after a restart of the coordinator. Continues every run from the state in the
  // store. Fails runs that need a plan and have no usable plan in the store.
  void Restart();
  // Begins the next epoch of recovering runs that have what they need, or sends them to the queue
  // to be planned anew. Call this in every tick.
  void Advance();
  // Notes that the transfer of shards (checkpoint files) to a new worker of a recovering run has
  // failed. Advance then plans the run anew. `failure`: a sentence for people.
  void OnMoveFailed(const Run& run, const std::string& failure) { move_failure_[run] = failure; }

  // A change of the run's state, or its removal, ends what OnMoveFailed noted.
  void OnMove(Run& run, const Transition& /*row*/) override { move_failure_.Forget(run.record.id); }
  void OnRemove(const RunId& id) override { move_failure_.Forget(id); }

 private:
  void Restart(Run& run);
  void Advance(Run& run);
  void NoteWhoIsThere(Run& run);
  std::vector<std::string> Away(const Run& run) const;
  std::string WhomItWaitsFor(const Run& run) const;
  std::string ChangesTo(const Run& run, const Assignment& next) const;
  void BeginNextEpoch(Run& run, const Crew& crew, Plan plan, uint64_t step);
  absl::Duration PatienceFor(const Run& run, const v1::CheckpointManifest* newest,
                             const v1::CheckpointManifest* within_reach, bool at_once) const;
  void Wait(Run& run, const std::string& sentence);
  void PlanAnew(Run& run, const std::string& why);

  Ledger& ledger_;
  Moves& moves_;
  Failures& failures_;
  const Health& health_;
  Spares& spares_;
  Shards& shards_;
  Stages& stages_;
  Tuning& tuning_;
  Crews& crews_;
  PerRun<std::string> move_failure_;  // "": no shards failed to arrive
};

}  // namespace longhaul::coordinator
