// Carries out what follows when a run finds that a worker errs or lies: goes back to a step that is
// trusted, with or without that worker. Changes nothing else: recovery (recovery/recovery.h) then
// goes on as after any loss.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "coordinator/state/ledger/ledger.h"
#include "coordinator/state/life/failures.h"
#include "coordinator/state/life/steps.h"
#include "coordinator/state/shards/shards.h"
#include "coordinator/state/workers/health.h"

namespace longhaul::coordinator {

class Verdicts {
 public:
  Verdicts(Ledger& ledger, Failures& failures, Steps& steps, Shards& shards, Health& health)
      : ledger_(ledger), failures_(failures), steps_(steps), shards_(shards), health_(health) {}

  // Ends the epoch, and trains the steps after `good_step` again, from the newest checkpoint up to
  // it. The run must have stages. `cause`: a sentence without its full stop.
  void Repeat(Run& run, uint64_t good_step, const std::string& cause);
  // The same without these workers, which all runs leave out until the coordinator is restarted.
  // The run may not have stages, or not on these workers: then the epoch goes on.
  void Evict(Run& run, const std::vector<WorkerId>& workers, uint64_t good_step,
             const std::string& cause);

 private:
  Ledger& ledger_;
  Failures& failures_;
  Steps& steps_;
  Shards& shards_;
  Health& health_;
};

}  // namespace longhaul::coordinator
