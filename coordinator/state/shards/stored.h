// Copies the checkpoints of runs with checkpoint.to to a folder of an object store, so that another
// coordinator can go on from there when everything else is lost. Workers write the files, and then
// the coordinator writes the description with which the checkpoint exists
// (run/stored/stored_checkpoint.h).
//
// One checkpoint of a run is copied at a time: the newest that is not interim, so slow lines leave
// some out. A failure is an event and never stops training; the next attempt follows after a pause.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "coordinator/state/events.h"
#include "coordinator/state/ledger/ledger.h"
#include "coordinator/state/ledger/moves.h"
#include "coordinator/state/shards/copies.h"
#include "coordinator/state/shards/shards.h"

namespace longhaul::coordinator {

class Stored : public MoveListener {
 public:
  Stored(Ledger& ledger, Shards& shards, Copies& copies);

  // Begins to copy checkpoints, and goes on where workers have answered. Call this in every tick.
  // Also copies the last checkpoint of a run that has ended.
  void Advance();
  void On(event::CheckpointStored& stored);
  // When the next attempt after a failure is due; MonoTime::max(): never.
  MonoTime NextWake() const;

  void OnMove(Run& run, const Transition& row) override;
  void OnRemove(const RunId& id) override { of_.Forget(id); }

 private:
  struct OfRun {
    uint64_t step = 0;  // of the checkpoint on its way; 0: none
    uint64_t epoch = 0;
    std::set<std::string> uploaded;  // names of its files that are there
    bool describing = false;         // the coordinator writes the description
    std::optional<MonoTime> not_before;
    absl::Duration pause;  // after the last failure; zero: there was none
    std::string said;      // the last failure that an event told
  };

  void Advance(Run& run);
  // Returns the checkpoint to copy; null: there is none to copy now.
  const v1::CheckpointManifest* Next(const Run& run, const OfRun& of) const;
  void Describe(Run& run, const v1::CheckpointManifest& manifest, const v1::StoredFolder& folder);
  void AfterUpload(Run& run, const ShardCheck& check, const std::string& failure);
  void Fail(Run& run, const std::string& failure);

  Ledger& ledger_;
  Shards& shards_;
  Copies& copies_;
  PerRun<OfRun> of_;
};

}  // namespace longhaul::coordinator
