// Chooses the workers (the crew) and the number of data-parallel replicas of a run's next epoch,
// which is the next attempt to train. Takes the run's own workers, its spares, and other free
// workers. If recovery.replicas is continue, a replica that lacks a worker is left out, and its
// remaining workers replace missing workers of other replicas.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "coordinator/state/ledger/ledger.h"
#include "coordinator/state/life/failures.h"
#include "coordinator/state/workers/health.h"
#include "coordinator/state/workers/worker_links.h"

namespace longhaul::coordinator {

// A process that died is often restarted at once. So for this time after an interruption, the cell
// (stage of one replica) of a lost worker goes only to workers that the run has reserved, unless
// recovery.replicas is continue.
inline constexpr absl::Duration kReturnPatience = absl::Seconds(5);

class Crews {
 public:
  Crews(Ledger& ledger, const Health& health, const WorkerLinks& links, const Failures& failures)
      : ledger_(ledger), health_(health), links_(links), failures_(failures) {}

  // Chooses workers for the wanted number of replicas, else for as many replicas as can have all
  // workers. If the run may not continue with so few replicas, some cells of the crew are null.
  // Reserves the free workers of the run's present stages. The run must have a plan.
  Crew For(Run& run);
  // Returns the plan of the next epoch; the caller sets epoch and first step. `crew` must be whole.
  // Errors: those of ResizePlan (planner/resize.h).
  StatusOr<Plan> PlanWith(const Run& run, const Crew& crew) const;

 private:
  uint32_t LeastReplicas(const Run& run) const;
  static void DropLeastWhole(uint32_t stages, Crew* crew);
  // Takes cells from workers that lack the memory for them, and gives free cells to other workers
  // if possible.
  void Fill(const Run& run, Crew* crew);
  // Returns a worker for this cell. Workers that the run has reserved come first. Others replace a
  // lost worker only after kReturnPatience, unless recovery.replicas is continue. Null: none can.
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
