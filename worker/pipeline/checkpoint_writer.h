// Writes snapshots to the shard store on its own thread, off the critical path of training.
//
// The writer holds at most two snapshots: one that is being written and one that waits.
//
// Thread-safe. Only the compute thread of a stage submits snapshots.
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
#include "worker/pipeline/input_recorder.h"

namespace longhaul::worker {

class CheckpointWriter {
 public:
  struct Job {
    std::shared_ptr<const StageSnapshot> snapshot;  // not null
    bool interim = false;  // true: a copy that serves only recovery; false: a checkpoint
    // What the stage has received before this state; nullopt: the run has no audits.
    std::optional<InputRecorder::Recording> inputs = std::nullopt;
    // Set by the writer: the file of `inputs`. nullopt: it could not be written.
    std::optional<ShardFile> inputs_file = std::nullopt;
  };
  // Called once for each job, on the writer's thread. Must not call the writer. `files`: the files
  // that were written, or the error of ShardStore::Write.
  using Done = std::function<void(const Job& job, const StatusOr<std::vector<ShardFile>>& files)>;
  // `store` must outlive this object.
  CheckpointWriter(ShardStore* store, RunId run, ShardOwner owner, Done done);
  // Blocks until the submitted jobs are done.
  ~CheckpointWriter();

  // Blocks until no snapshot waits. Call it before taking a snapshot; otherwise three snapshots may
  // be in memory.
  void AwaitRoom();
  // Blocks until no snapshot waits, and then queues `job`.
  void Submit(Job job);
  // Blocks until every submitted snapshot is written or has failed.
  void Flush();

 private:
  void Loop();
  void WriteInputs(Job* job);
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
