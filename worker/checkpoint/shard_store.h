// Stores checkpoint shards: the files in which one stage writes its part of a checkpoint. The one
// backend is a local folder.
//
//   <root>/<run>/step-00000050/stage-1.params.safetensors
//   <root>/<run>/step-00000050/stage-1.optim.safetensors
//   <root>/<run>/step-00000050/stage-1.tables.safetensors    if the stage's codec predicts by token
//   <root>/<run>/step-00000050/stage-1.inputs.bin            if the run has audits
//
// params: the parameters. optim: the optimizer state. tables: StageSnapshot::tables. The
// data-parallel replicas of a stage have equal parameters, so all of them write the same params
// file. The other files hold a replica's own state, and their names have the replica's number:
// "stage-1.replica-0.optim.safetensors". inputs: what the stage has received since the state before
// (worker/pipeline/input_recorder.h), which is no part of its state.
//
// A file appears under its name whole or not at all: it is written under a temporary name, synced
// and renamed, and its folder is synced. ShardStore is thread-safe; a ShardWriter is used by one
// thread at a time. Errors not named below are those of FromErrno (base/status.h).
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
  std::string sha256;  // of the whole file: 64 lower-case hexadecimal digits
  // The replica whose own state the file holds; nullopt: the file is the same for all replicas.
  std::optional<uint32_t> replica = std::nullopt;
  // The path at which Read finds a file that is not in the store, such as a fetched copy. Empty:
  // the file is in the store.
  std::string path = {};
  // The run that wrote the file. Empty: the run that is named beside it.
  std::string run = {};
};

// Returns true if a file of this name holds token tables (StageSnapshot::tables). To restore a
// checkpoint, both the stage that wrote the tables and the next stage need them.
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

// Writes a file of a checkpoint that arrives in pieces, for example from another worker. A writer
// that is destroyed before Commit leaves no file.
class ShardWriter {
 public:
  virtual ~ShardWriter() = default;
  // Appends the next piece. kInvalidArgument: the file would be longer than announced to Take.
  // kResourceExhausted: the disk is full.
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
  // Writes what a stage has received before the state of `step` beside the files of that state.
  // Errors: as Write. The default: kUnimplemented.
  virtual StatusOr<ShardFile> WriteInputs(const RunId& run, const ShardOwner& owner, Step step,
                                          std::span<const std::byte> bytes);
  // Begins to write a file that arrives in pieces. `file` announces its name, length and hash.
  // kInvalidArgument: as PathOf.
  virtual StatusOr<std::unique_ptr<ShardWriter>> Take(const RunId& run, Step step,
                                                      const ShardFile& file) = 0;
  // Returns the path of the file `name`, whether the file exists or not. kInvalidArgument: the name
  // or the run's id would lead out of the folder.
  virtual StatusOr<std::string> PathOf(const RunId& run, Step step,
                                       const std::string& name) const = 0;
  // Reads the file and verifies its size and hash. kNotFound: the file is missing. kDataLoss: size
  // or hash differs. kUnavailable: the run's whole folder is missing, so the disk may not be
  // mounted. After any error except kNotFound and kDataLoss the file may still be good. Messages do
  // not name the file.
  virtual Status Check(const RunId& run, Step step, const ShardFile& file) const = 0;
  // Reads `files` of `step`, verifies sizes and hashes, and merges the files into one snapshot. The
  // files may come from several stages. kNotFound, kDataLoss: as in Check. kInvalidArgument: not a
  // safetensors file. kFailedPrecondition: a file is of another run or step, or two files have
  // different values for an array. Messages name the file.
  virtual StatusOr<StageSnapshot> Read(const RunId& run, Step step,
                                       const std::vector<ShardFile>& files) const = 0;
  // Returns the oldest step that has a folder, even if shards are missing in this folder; nullopt:
  // no step has a folder.
  virtual StatusOr<std::optional<Step>> Oldest(const RunId& run) const = 0;
  // Deletes a step's shards. OK if there are none.
  virtual Status Drop(const RunId& run, Step step) = 0;
  // Deletes the shards of each step that is not in `kept` and older than the newest step in `kept`.
  // Keeps newer steps, because their checkpoint may still be incomplete. Deletes nothing if `kept`
  // is empty.
  virtual Status DropOthers(const RunId& run, const std::set<Step>& kept) = 0;
  // Deletes everything of a run. OK if there is nothing.
  virtual Status DropRun(const RunId& run) = 0;
};

// Returns the files that ShardStore::Write would write, without writing them. Cannot fail.
std::vector<ShardFile> DescribeShards(const RunId& run, const ShardOwner& owner,
                                      const StageSnapshot& snapshot);

}  // namespace longhaul::worker
