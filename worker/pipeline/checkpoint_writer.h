// Writes snapshots to the shard store on its own thread, off the critical path of training.
//
// At most two snapshots are in memory: one being written and one waiting. AwaitRoom blocks while
// one waits. `done` runs on the writer's thread.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "worker/checkpoint/shard_store.h"

namespace longhaul::worker {

class CheckpointWriter {
 public:
  struct Job {
    std::shared_ptr<const StageSnapshot> snapshot;
    bool interim = false;  // only for recovery (CheckpointManifest)
  };
  using Done = std::function<void(const Job& job, const StatusOr<std::vector<ShardFile>>& files)>;
  CheckpointWriter(ShardStore* store, RunId run, ShardOwner owner, Done done);
  // Finishes the submitted jobs.
  ~CheckpointWriter();

  // Blocks until no snapshot waits. Call it before taking a snapshot; otherwise a third one exists.
  void AwaitRoom();
  void Submit(Job job);
  // Blocks until every submitted snapshot is written or has failed.
  void Flush();

 private:
  void Loop();
  ShardStore* const store_;
  const RunId run_;
  const ShardOwner owner_;
  const Done done_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Job> waiting_;
  bool writing_ = false;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace longhaul::worker
