// `longhaul rm` removes an ended run with all its data. `longhaul gc` deletes data that no run
// needs any more. Both keep all data of runs that have not ended. `longhaul gc` also keeps the
// checkpoints of ended runs that a resume may use.
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

  // Replies in this tick. kNotFound: no such run. kFailedPrecondition: the run has not ended, was
  // submitted in this tick, or its checkpoints are being checked or copied.
  void On(event::RemoveAsked& asked);
  // command::CollectGarbage sends the reply.
  void On(event::GarbageAsked& asked);
  // Logs the runs that the restarted coordinator cannot read.
  void LogUnreadable();

 private:
  StatusOr<v1::RemoveRunReply> Remove(const std::string& id_or_name);
  StatusOr<v1::RemoveRunReply> RemoveUnreadable(const RunId& id);
  // Drops all data of the run from the store; connected workers delete their files of it.
  void Forget(const RunId& id, Epoch epoch);
  // Drops checkpoints that no resume uses.
  void TrimCheckpoints(Run& run, bool dry_run, v1::CollectGarbageReply* reply);
  // Adds the blobs and copies that runs, drafts and held submissions name.
  void NameAll(command::CollectGarbage* collect) const;

  Ledger& ledger_;
  Moves& moves_;
  Shards& shards_;
  const Planning& planning_;
  const Queue& queue_;
  std::vector<UnreadableRun> unreadable_;  // not removed yet
};

}  // namespace longhaul::coordinator
