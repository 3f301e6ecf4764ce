// Stores checkpoint shards. The one backend is a local folder.
//
//   <root>/<run>/step-00000050/stage-1.params.safetensors
//   <root>/<run>/step-00000050/stage-1.optim.safetensors
//   <root>/<run>/step-00000050/stage-1.tables.safetensors    if its codec predicts by token
//
// The replicas of a stage have equal parameters, so they write the same file of parameters. The
// other files hold a replica's own state and are named by it:
// "stage-1.replica-0.optim.safetensors".
//
// A file appears under its name whole or not at all: it is written under a temporary name, synced
// and renamed, and its folder is synced. Thread-safe.
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
  // The replica whose own state the file holds; nullopt: the file is the same for all replicas.
  std::optional<uint32_t> replica = std::nullopt;
  // The path at which Read finds a file that is not in the store, such as a fetched copy. Empty:
  // the file is in the store.
  std::string path = {};
};

// Returns true if a file of this name holds token tables (StageSnapshot). Both the stage that wrote
// them and the next stage need them.
inline bool HoldsTables(const std::string& name) {
  return name.ends_with(".tables.safetensors");
}

// The stage, or the replica of a stage, that writes files of a checkpoint.
struct ShardOwner {
  ShardOwner(StageIndex of_stage, std::optional<uint32_t> of_replica = std::nullopt)
      : stage(of_stage), replica(of_replica) {}
  StageIndex stage;
  std::optional<uint32_t> replica;  // nullopt: the stage has no replicas
};

// Writes a file of a checkpoint that arrives from elsewhere in pieces. A writer that is destroyed
// before Commit leaves no file.
class ShardWriter {
 public:
  virtual ~ShardWriter() = default;
  // Appends the next piece. kInvalidArgument: the file would be longer than announced.
  virtual Status Append(std::span<const std::byte> bytes) = 0;
  // Makes the file durable under its name. kDataLoss: its length or hash is not the announced one.
  virtual Status Commit() = 0;
};

class ShardStore {
 public:
  // Creates the folder `root` if needed. Only one process may use the folder, because this call
  // deletes all temporary files, which a killed process may have left.
  static StatusOr<std::unique_ptr<ShardStore>> OpenLocal(const std::string& root);
  virtual ~ShardStore() = default;

  // Writes a stage's files and returns them. kResourceExhausted: the disk is full; existing files
  // are unchanged.
  virtual StatusOr<std::vector<ShardFile>> Write(const RunId& run, const ShardOwner& owner,
                                                 const StageSnapshot& snapshot) = 0;
  // Begins to write a file that arrives from elsewhere. `file` announces its name, length and hash.
  virtual StatusOr<std::unique_ptr<ShardWriter>> Take(const RunId& run, Step step,
                                                      const ShardFile& file) = 0;
  // Returns the path that a file of this name has, even if there is none. kInvalidArgument: the
  // name would lead out of the folder.
  virtual StatusOr<std::string> PathOf(const RunId& run, Step step,
                                       const std::string& name) const = 0;
  // Reads the file and verifies it. kNotFound: it is missing. kDataLoss: its size or hash differs.
  // After another error the file may still be good, because the disk fails or is not mounted.
  // kUnavailable: the run's whole folder is missing. Messages do not name the file.
  virtual Status Check(const RunId& run, Step step, const ShardFile& file) const = 0;
  // Reads `files` of `step`, verifies sizes and hashes, and merges the files into one snapshot. The
  // files may come from several stages. kNotFound, kDataLoss: as Check. kFailedPrecondition: a file
  // is of another run or step, or two files disagree about an array. Messages name the file.
  virtual StatusOr<StageSnapshot> Read(const RunId& run, Step step,
                                       const std::vector<ShardFile>& files) const = 0;
  // Returns the oldest step that has a folder, even if shards are missing there; nullopt: no step
  // has one.
  virtual StatusOr<std::optional<Step>> Oldest(const RunId& run) const = 0;
  // Deletes a step's shards. OK if there are none.
  virtual Status Drop(const RunId& run, Step step) = 0;
  // Deletes the shards of all steps before the newest in `kept` that are not in `kept` themselves.
  virtual Status DropOthers(const RunId& run, const std::set<Step>& kept) = 0;
  // Deletes everything of a run. OK if there is nothing.
  virtual Status DropRun(const RunId& run) = 0;
};

}  // namespace longhaul::worker
