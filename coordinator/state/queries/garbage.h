// `longhaul rm` and `longhaul gc`: runs that are removed, and data that no run needs any more.
// Nothing of a run that has not ended goes, and no checkpoint that a resume would take.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "coordinator/state/events.h"
#include "coordinator/state/ledger/ledger.h"
#include "coordinator/state/ledger/moves.h"
#include "coordinator/state/planning/planning.h"
#include "coordinator/state/planning/queue.h"
#include "coordinator/state/shards/shards.h"

namespace longhaul::coordinator {

class Garbage {
 public:
  Garbage(Ledger& ledger, Moves& moves, Shards& shards, const Planning& planning,
          const Queue& queue, std::vector<UnreadableRun> unreadable)
      : ledger_(ledger),
        moves_(moves),
        shards_(shards),
        planning_(planning),
        queue_(queue),
        unreadable_(std::move(unreadable)) {}

  void On(event::RemoveAsked& asked);
  void On(event::GarbageAsked& asked);
  // The coordinator has restarted: people hear of runs that it cannot read.
  void LogUnreadable();

 private:
  StatusOr<v1::RemoveRunReply> Remove(const std::string& id_or_name);
  StatusOr<v1::RemoveRunReply> RemoveUnreadable(const RunId& id);
  // Nothing is left of the run in the store; connected workers delete their files of it.
  void Forget(const RunId& id, Epoch epoch);
  // Drops checkpoints that no resume takes.
  void TrimCheckpoints(Run& run, bool dry_run, v1::CollectGarbageReply* reply);
  void NameAll(command::CollectGarbage* collect) const;

  Ledger& ledger_;
  Moves& moves_;
  Shards& shards_;
  const Planning& planning_;
  const Queue& queue_;
  std::vector<UnreadableRun> unreadable_;  // without those that were removed
};

}  // namespace longhaul::coordinator
