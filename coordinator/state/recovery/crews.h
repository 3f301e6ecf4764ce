// Chooses the workers of a run's next epoch, and its number of replicas, from the run's own
// workers, its spares, and other free workers. If recovery.replicas is continue, a replica that
// cannot have all its workers is left out, and those that it has replace missing ones of other
// replicas.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "coordinator/state/ledger/ledger.h"
#include "coordinator/state/life/failures.h"
#include "coordinator/state/workers/health.h"
#include "coordinator/state/workers/worker_links.h"

namespace longhaul::coordinator {

// A process that died is often restarted at once. Workers that are not reserved for the run take
// its cell only after this time.
inline constexpr absl::Duration kReturnPatience = absl::Seconds(5);

class Crews {
 public:
  Crews(Ledger& ledger, const Health& health, const WorkerLinks& links, const Failures& failures)
      : ledger_(ledger), health_(health), links_(links), failures_(failures) {}

  // Chooses workers for the wanted number of replicas, else for as many as can be whole. If these
  // are fewer than the run may continue with, some cells have no worker. Reserves the run's own
  // workers that are free.
  Crew For(Run& run);
  // Returns the plan of the next epoch; the caller sets epoch and first step. `crew` must be whole.
  // Errors: those of ResizePlan.
  StatusOr<Plan> PlanWith(const Run& run, const Crew& crew) const;

 private:
  uint32_t LeastReplicas(const Run& run) const;
  static void DropLeastWhole(uint32_t stages, Crew* crew);
  // Takes cells from workers that lack the memory for them, and gives free cells to other workers
  // if possible.
  void Fill(const Run& run, Crew* crew);
  // Workers that the run has reserved come first. Others replace a worker only after it had time to
  // come back, unless recovery.replicas is continue. Null: no worker can.
  Worker* ReplacementFor(const Run& run, const CellId& id, const Crew& crew);
  bool HasMemory(const Run& run, const CellId& id, const Worker& worker, const Crew& crew) const;
  bool CanTake(const Run& run, const CellId& id, const Worker& worker, const Crew& crew) const;
  Assignment WithCrew(const Run& run, const Crew& crew) const;

  Ledger& ledger_;
  const Health& health_;
  const WorkerLinks& links_;
  const Failures& failures_;
};

}  // namespace longhaul::coordinator
