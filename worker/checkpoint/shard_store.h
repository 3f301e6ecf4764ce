// Where checkpoint shards lie: a seam with one backend now, a local folder.
//
//   <root>/<run>/step-00000050/stage-1.params.safetensors
//   <root>/<run>/step-00000050/stage-1.optim.safetensors
//   <root>/<run>/step-00000050/stage-1.tables.safetensors    where its boundary predicts by tokens
//
// Where a stage has replicas, all of them write the same parameters, and each writes its part of
// the rest: "stage-1.replica-0.optim.safetensors".
//
// A file appears under its name whole or not at all (temporary name, fsync, rename, fsync of the
// folder). Thread-safe.
#ifndef LONGHAUL_WORKER_CHECKPOINT_SHARD_STORE_H_
#define LONGHAUL_WORKER_CHECKPOINT_SHARD_STORE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

struct ShardFile {
  std::string name;  // "stage-1.params.safetensors"
  uint64_t bytes = 0;
  std::string sha256;
  // Whose part of the stage's state it has; nullopt: all replicas write the same.
  std::optional<uint32_t> replica = std::nullopt;
  // Where it is, if it does not lie in the store (a copy that was fetched).
  std::string path = {};
};

// Whether a file of this name holds tables (StageSnapshot), which the stage below needs, too.
inline bool HoldsTables(const std::string& name) {
  return name.ends_with(".tables.safetensors");
}

// Who writes files of a checkpoint.
struct ShardOwner {
  ShardOwner(StageIndex of_stage, std::optional<uint32_t> of_replica = std::nullopt)
      : stage(of_stage), replica(of_replica) {}
  StageIndex stage;
  std::optional<uint32_t> replica;  // nullopt: the stage has one
};

// A file of a checkpoint that is being taken from elsewhere. Destroyed before Commit it leaves
// nothing.
class ShardWriter {
 public:
  virtual ~ShardWriter() = default;
  // kInvalidArgument: more than the file has.
  virtual Status Append(std::span<const std::byte> bytes) = 0;
  // The file is there, and durable. kDataLoss: it is not the file that was announced.
  virtual Status Commit() = 0;
};

class ShardStore {
 public:
  // Makes the folder where it is missing and deletes the temporary files of a process that was
  // killed; so one process at a time.
  static StatusOr<std::unique_ptr<ShardStore>> OpenLocal(const std::string& root);
  virtual ~ShardStore() = default;

  // Writes the files of a stage. A full disk (kResourceExhausted) leaves what was there as it was.
  virtual StatusOr<std::vector<ShardFile>> Write(const RunId& run, const ShardOwner& owner,
                                                 const StageSnapshot& snapshot) = 0;
  // Begins to write a file that somebody else has. A full disk as Write.
  virtual StatusOr<std::unique_ptr<ShardWriter>> Take(const RunId& run, Step step,
                                                      const ShardFile& file) = 0;
  // Where a file of this name is or would be. kInvalidArgument for a name that leaves the folder.
  virtual StatusOr<std::string> PathOf(const RunId& run, Step step,
                                       const std::string& name) const = 0;
  // Reads the file from the disk. kNotFound, kDataLoss (another size or hash): it is damaged. Any
  // other error says why the file cannot be looked at, and nothing of the file: the disk fails, or
  // is not there, which shows by the missing folder of the whole run. The message does not repeat
  // the file's name.
  virtual Status Check(const RunId& run, Step step, const ShardFile& file) const = 0;
  // Reads `files` of `step`, checking sizes and hashes, merged into one snapshot; stages that wrote
  // them with another split may be among them. Not OK as Check, naming the file.
  virtual StatusOr<StageSnapshot> Read(const RunId& run, Step step,
                                       const std::vector<ShardFile>& files) const = 0;
  // The oldest step of which there are shards, whole or not.
  virtual StatusOr<std::optional<Step>> Oldest(const RunId& run) const = 0;
  // Deletes a step's shards; OK where there are none.
  virtual Status Drop(const RunId& run, Step step) = 0;
  // Deletes the shards of all steps before the newest of `kept` but those of `kept`.
  virtual Status DropOthers(const RunId& run, const std::set<Step>& kept) = 0;
  // Deletes all that there is of a run, committed or not; OK where there is nothing.
  virtual Status DropRun(const RunId& run) = 0;
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_CHECKPOINT_SHARD_STORE_H_
