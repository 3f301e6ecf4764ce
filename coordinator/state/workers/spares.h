// Spares are connected workers that a run reserves in addition to the workers of its stages. They
// hold copies of the run's checkpoints, and replace a lost worker. They also time the run's layers,
// because this loads and warms everything that a stage needs. Queued runs get free workers before
// runs that lack spares.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "coordinator/state/ledger/ledger.h"
#include "coordinator/state/workers/health.h"
#include "coordinator/state/workers/orders.h"
#include "coordinator/state/workers/worker_links.h"

namespace longhaul::coordinator {

class Spares {
 public:
  Spares(Ledger& ledger, const Health& health, const WorkerLinks& links, Orders& orders)
      : ledger_(ledger), health_(health), links_(links), orders_(orders) {}

  // False while the run is planned: the workers that the run reserves are candidates.
  bool IsSpareOf(const Worker& worker, const Run& run) const;
  // Sorted by name. Valid until the next event is handled.
  std::vector<Worker*> SparesOf(const Run& run) const;
  // Returns how many spares the run shall have: the run file's number, plus the workers that the
  // missing replicas need, plus one for each stage whose worker is leaving.
  size_t SparesWanted(const Run& run) const;
  // Returns why fewer replicas train than wanted, as a sentence for people; "": none is missing.
  std::string WhyFewerReplicas(const Run& run) const;

  // Reserves spares for runs that lack some, and asks spares to time layers. Call this in every
  // tick.
  void Advance();
  // Frees spares beyond `wanted`, for example one that was reserved to replace a worker that has
  // come back.
  void ReleaseBeyond(const Run& run, size_t wanted);
  // Takes the layer times of a spare. Ignores implausible times (layer_times.h).
  void OnTimes(Worker& worker, const Run& run, const v1::LayerTimes& times);

 private:
  void AskForTimes(const Run& run);

  Ledger& ledger_;
  const Health& health_;
  const WorkerLinks& links_;
  Orders& orders_;
};

}  // namespace longhaul::coordinator
