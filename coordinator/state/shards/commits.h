// Commits a checkpoint when every stage has reported its shards, which are the files that the stage
// wrote. If a stage cannot write its shards (full disk), the checkpoint is skipped: training goes
// on, and older checkpoints stay.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "coordinator/state/ledger/ledger.h"
#include "coordinator/state/ledger/moves.h"
#include "coordinator/state/life/failures.h"
#include "coordinator/state/shards/copies.h"
#include "coordinator/state/shards/hooks.h"
#include "coordinator/state/workers/health.h"

namespace longhaul::coordinator {

class Commits : public MoveListener {
 public:
  Commits(Ledger& ledger, Failures& failures, Health& health, Copies& copies, Hooks& hooks)
      : ledger_(ledger), failures_(failures), health_(health), copies_(copies), hooks_(hooks) {}

  // Takes a stage's report of its shards of one checkpoint. Drops impossible reports. Fails the run
  // if two replicas of a stage wrote different parameters.
  void OnShard(Run& run, StageRecord& stage, const Worker& worker,
               const v1::WorkerMessage& message);

  // Sets the function that is called with the reports of each checkpoint that is committed, by
  // index of the stage, while the checkpoint before it is still there. `before`: its step, or the
  // step at which the epoch began.
  using Committed = std::function<void(Run& run, uint64_t before, uint64_t step,
                                       std::span<const std::optional<v1::ShardReport>> reports)>;
  void WhenCommitted(Committed committed) { committed_ = std::move(committed); }

  void OnMove(Run& run, const Transition& row) override;
  void OnRemove(const RunId& id) override { of_.Forget(id); }

 private:
  // Reports of one checkpoint, by index of the stage, until all have arrived.
  using Reports = std::vector<std::optional<v1::ShardReport>>;
  struct OfRun {
    std::map<uint64_t, Reports> partial;
    uint64_t partial_bytes = 0;  // of the reports in `partial`
    std::set<uint64_t> skipped;  // steps whose checkpoint a stage could not write
  };

  static void DropPartial(OfRun& of, std::map<uint64_t, Reports>::iterator step);
  void Commit(Run& run, uint64_t step, const Reports& reports);
  // True: this checkpoint is skipped, because of this report or an earlier one.
  bool Skip(Run& run, const StageRecord& stage, const v1::ShardReport& report);

  Ledger& ledger_;
  Failures& failures_;
  Health& health_;
  Copies& copies_;
  Hooks& hooks_;
  PerRun<OfRun> of_;
  Committed committed_;  // may be empty
};

}  // namespace longhaul::coordinator
