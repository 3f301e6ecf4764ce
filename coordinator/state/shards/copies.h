// Copies the shards (files) of a run's checkpoints to another worker or the coordinator, so that
// the loss of one machine loses no stage. Copies one checkpoint at a time, always the newest. A
// checkpoint is safe when the coordinator, or a second worker, has each of its files. The newest
// safe checkpoint is never dropped.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "coordinator/state/ledger/ledger.h"
#include "coordinator/state/ledger/moves.h"
#include "coordinator/state/shards/shards.h"
#include "coordinator/state/workers/spares.h"
#include "coordinator/state/workers/worker_links.h"

namespace longhaul::coordinator {

class Copies : public MoveListener {
 public:
  Copies(Ledger& ledger, const WorkerLinks& links, const Spares& spares, Shards& shards);

  // Begins to copy the newest checkpoint of each run with stages, unless a copy for the run is
  // under way. Call this in every tick. Tries again 30 s after a failure.
  void Advance();
  // Makes workers send the checkpoint to the coordinator, if the run file has checkpoint.keep_copy.
  void KeepAtCoordinator(const Run& run, const v1::CheckpointManifest& manifest);
  // As above, for all files of a worker that has come back. Leaves out the checkpoints `copying`
  // (run and step), of which the worker already sends or receives files.
  void KeepAtCoordinator(const Worker& worker, const std::set<std::pair<RunId, uint64_t>>& copying);
  // Makes a leaving worker send the files of the checkpoint that nobody else has who stays: to a
  // spare, another stage's worker or the coordinator. The run must have a plan.
  void SaveFrom(Run& run, const v1::CheckpointManifest& manifest, const Worker& source);
  // Drops old checkpoints. Keeps the newest checkpoint.keep ones, not counting interim checkpoints,
  // which are made only for recovery. Also keeps the very newest, the newest safe one, the newest
  // in an object store, one that is being copied or audited and, until the run trains, the one from
  // which the run resumes.
  void DropOutdated(Run& run);

  void OnMove(Run& run, const Transition& row) override;
  void OnRemove(const RunId& id) override { of_.Forget(id); }

 private:
  // Begins to copy the newest checkpoint, unless a copy is under way.
  void Begin(Run& run);
  // Returns the worker that shall hold copies of the shards of `source`; null: the coordinator.
  Worker* HolderFor(Run& run, const Worker& source);
  // The same; with `apart`, only workers on other machines than `source`.
  Worker* HolderAmong(Run& run, const Worker& source, bool apart);
  void KeepAtCoordinator(const Run& run, const v1::CheckpointManifest& manifest,
                         const std::string& only_of_worker);
  void AfterCopy(Run& run, const ShardCheck& check, const std::string& failure);

  struct OfRun {
    uint64_t begun = 0;             // newest step for which copies were requested
    std::optional<MonoTime> again;  // time to copy that step again, because some copies failed
    bool fail = false;              // the last copies failed
    std::string with;               // the holder's name in events
  };

  Ledger& ledger_;
  const WorkerLinks& links_;
  const Spares& spares_;
  Shards& shards_;
  PerRun<OfRun> of_;
};

}  // namespace longhaul::coordinator
