// Stores checkpoint shards. The one backend is a local folder.
//
//   <root>/<run>/step-00000050/stage-1.params.safetensors
//   <root>/<run>/step-00000050/stage-1.optim.safetensors
//   <root>/<run>/step-00000050/stage-1.tables.safetensors    where its boundary predicts by tokens
//
// If a stage has replicas, all of them write the same parameters, and each writes its part of the
// other state: "stage-1.replica-0.optim.safetensors".
//
// A file appears under its name whole or not at all (temporary name, fsync, rename, fsync of the
// folder). Thread-safe.
#pragma once

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
  // The replica whose part of the stage's state the file holds; nullopt: the same for all replicas.
  std::optional<uint32_t> replica = std::nullopt;
  // Path of a file outside the store (a fetched copy).
  std::string path = {};
};

// Whether a file of this name holds token tables (StageSnapshot), which the next stage reads as
// well.
inline bool HoldsTables(const std::string& name) {
  return name.ends_with(".tables.safetensors");
}

// The stage or replica that writes files of a checkpoint.
struct ShardOwner {
  ShardOwner(StageIndex of_stage, std::optional<uint32_t> of_replica = std::nullopt)
      : stage(of_stage), replica(of_replica) {}
  StageIndex stage;
  std::optional<uint32_t> replica;  // nullopt: the stage has no replicas
};

// Writes a file of a checkpoint that is received from elsewhere. If destroyed before Commit, it
// leaves nothing.
class ShardWriter {
 public:
  virtual ~ShardWriter() = default;
  // kInvalidArgument: longer than the announced file.
  virtual Status Append(std::span<const std::byte> bytes) = 0;
  // Makes the file durable under its name. kDataLoss: its hash is not the announced one.
  virtual Status Commit() = 0;
};

class ShardStore {
 public:
  // Creates the folder if needed and deletes temporary files of a killed process, so only one
  // process may use the folder.
  static StatusOr<std::unique_ptr<ShardStore>> OpenLocal(const std::string& root);
  virtual ~ShardStore() = default;

  // Writes a stage's files. kResourceExhausted (disk full) leaves existing files unchanged.
  virtual StatusOr<std::vector<ShardFile>> Write(const RunId& run, const ShardOwner& owner,
                                                 const StageSnapshot& snapshot) = 0;
  // Begins to write a file that is received from elsewhere. Disk full: as Write.
  virtual StatusOr<std::unique_ptr<ShardWriter>> Take(const RunId& run, Step step,
                                                      const ShardFile& file) = 0;
  // Path of a file of this name, present or not. kInvalidArgument: the name would leave the folder.
  virtual StatusOr<std::string> PathOf(const RunId& run, Step step,
                                       const std::string& name) const = 0;
  // Reads and verifies the file. kNotFound or kDataLoss (size or hash differs): the file is
  // damaged. Other errors mean that the file cannot be read, and prove nothing about the file: the
  // disk fails or is not mounted (the folder of the whole run is missing). The message does not
  // repeat the file's name.
  virtual Status Check(const RunId& run, Step step, const ShardFile& file) const = 0;
  // Reads `files` of `step`, verifies sizes and hashes, and merges them into one snapshot. Stages
  // of another split may have written them. Errors as Check, naming the file.
  virtual StatusOr<StageSnapshot> Read(const RunId& run, Step step,
                                       const std::vector<ShardFile>& files) const = 0;
  // The oldest step with shards, complete or not.
  virtual StatusOr<std::optional<Step>> Oldest(const RunId& run) const = 0;
  // Deletes a step's shards. OK if there are none.
  virtual Status Drop(const RunId& run, Step step) = 0;
  // Deletes the shards of all steps before the newest of `kept`, except steps in `kept`.
  virtual Status DropOthers(const RunId& run, const std::set<Step>& kept) = 0;
  // Deletes everything of a run. OK if there is nothing.
  virtual Status DropRun(const RunId& run) = 0;
};

}  // namespace longhaul::worker
