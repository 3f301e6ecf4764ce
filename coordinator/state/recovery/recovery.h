// Continues a run after a loss: a worker that died, a link that could not be restored, or an error
// of a stage. The first attempt is in place. The run keeps its split of layers, and its next epoch
// begins from the newest whole checkpoint as soon as every cell has a worker: its old one, a new
// process of it, or another one (crews.h). Workers that were not affected keep their models. If
// this attempt fails, or a worker stays away, the run is planned anew with the connected workers.
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

  // After a restart of the coordinator, continues every run from the state in the store.
  void Restart();
  // Begins the next epoch of recovering runs that have what they need, or plans them anew.
  void Advance();
  // Notes that shards did not arrive at a new worker of a recovering run, which Advance then plans
  // anew. `failure`: a sentence for people.
  void OnMoveFailed(const Run& run, const std::string& failure) { move_failure_[run] = failure; }

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
