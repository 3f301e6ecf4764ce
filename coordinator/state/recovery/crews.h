// Who has the cells of a run's next epoch, and with how many replicas it goes on: the workers that
// it has, spares, and others that are free. Where recovery.replicas says continue, a replica that
// cannot be whole is left out, and its workers replace missing ones of the other replicas.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "coordinator/state/ledger/ledger.h"
#include "coordinator/state/life/failures.h"
#include "coordinator/state/workers/health.h"
#include "coordinator/state/workers/worker_links.h"

namespace longhaul::coordinator {

// A process that died is often started again at once. Others take its place only after that.
inline constexpr absl::Duration kReturnPatience = absl::Seconds(5);

class Crews {
 public:
  Crews(Ledger& ledger, const Health& health, const WorkerLinks& links, const Failures& failures)
      : ledger_(ledger), health_(health), links_(links), failures_(failures) {}

  // Chooses workers for as many replicas as are wanted, or else for as many as can be complete. If
  // these are fewer than the run may go on with, some cells have no worker. Reserves the run's own
  // workers that are free.
  Crew For(Run& run);
  // The plan of the next epoch, whose epoch and first step are not set yet. `crew` is whole.
  StatusOr<Plan> PlanWith(const Run& run, const Crew& crew) const;

 private:
  uint32_t LeastReplicas(const Run& run) const;
  static void DropLeastWhole(uint32_t stages, Crew* crew);
  // Takes cells from workers that lack the memory for them, and gives free cells to other workers
  // as far as it can.
  void Fill(const Run& run, Crew* crew);
  // Workers that the run has reserved come first. Others take the place when its worker had time to
  // come back, unless the run would go on without it meanwhile. Null: nobody can.
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
