// Everything of a stage that stays in memory between attempts at a run ("epochs"): the model with
// optimizer state and CUDA graphs, the last snapshot, and the open training text. An attempt that
// needs the same stage of the same run reuses this object.
//
// The hashes of a checkpoint's files prove that the parameters in memory are those of the
// checkpoint. The step alone does not prove it: the run may have continued elsewhere from an older
// checkpoint, so that its parameters of the same step differ.
//
// Threads: one at a time, the compute thread during an attempt; Keep and snapshot on any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "run/plan/plan.h"
#include "worker/checkpoint/shard_store.h"
#include "worker/data/window_source.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

// What a stage was made for. An assignment with the same identity can reuse the stage.
struct ResidentIdentity {
  RunId run;
  Group group;
  StageOptions options;
  // True: a ReplicaExchange holds a part of the state. So after the first step the model alone
  // cannot continue the run, and SourceOf asks for a snapshot or files.
  bool has_replicas = false;
  bool overlaps_steps = false;  // true: passes of two steps overlap, so the stage has a twin
  // Returns true if a stage that was made for this identity can be used for `other`. Keys of the
  // run file that do not affect the stage (run/file/keys.h) may differ.
  bool IsSame(const ResidentIdentity& other) const;
};

// The checkpoint that the parameters come from.
struct ParametersOrigin {
  uint64_t step = 0;             // 0: the initial parameters, from no checkpoint
  std::set<std::string> sha256;  // hashes of its files, without the files of token tables
  friend bool operator==(const ParametersOrigin&, const ParametersOrigin&) = default;
};
// Returns the origin for the checkpoint files of `step`.
ParametersOrigin OriginOf(uint64_t step, const std::vector<ShardFile>& files);

using SharedSnapshot = std::shared_ptr<const StageSnapshot>;

class ResidentStage {
 public:
  // Makes a stage with its initial parameters. Errors: those of `make_stage`.
  static StatusOr<std::unique_ptr<ResidentStage>> Create(
      ResidentIdentity identity, const MakeStage& make_stage = Stage::Create);
  // `model` must be untrained and not null.
  ResidentStage(ResidentIdentity identity, std::unique_ptr<Stage> model);

  const ResidentIdentity& identity() const { return identity_; }
  // The stage with the newest parameters, which may be the twin.
  Stage& model() { return *Newest(); }
  // Returns the stage that computes the passes of `step` and the validations after it. If steps
  // overlap, the stage and its twin alternate.
  Stage& ModelFor(Step step);
  // Gives ModelFor(step) the newest parameters and the optimizer. Call it after the passes of
  // `step` and before its update. Does nothing without a twin.
  Status TakeTurn(Step step);
  // Bytes of the stage's device that this object holds between attempts. Includes the snapshot if
  // the device is the CPU.
  uint64_t memory_bytes() const;

  // --- At the beginning of an attempt.
  //
  // Where the parameters of a checkpoint `origin` are.
  enum class Source : uint8_t {
    kParameters,  // the model has the parameters of `origin`
    kSnapshot,    // the kept snapshot is of `origin`
    kFiles,       // neither: read the files of `origin`; for step 0, make a new model
  };
  // Returns where the parameters of `origin` are. Changes nothing.
  Source SourceOf(const ParametersOrigin& origin) const;
  // Frees the kept snapshot. Call it before files are read, so that memory holds only one.
  void ForgetSnapshot();
  // Gives the stage the parameters of `origin`, and makes the twin if needed. `read`: for kFiles,
  // the contents of the files; else null. Errors: those of Stage; kInternal: the files are needed,
  // and `read` is null. After an error the stage may be changed in part: do not use it.
  Status BeginFrom(const ParametersOrigin& origin, SharedSnapshot read);

  // Returns the kept snapshot: the last one that was written or read. Null: none is kept.
  SharedSnapshot snapshot() const;

  // --- While the stage trains.
  //
  // Takes a snapshot for a checkpoint. Drops the kept snapshot first. So memory holds one snapshot,
  // or two while the previous one is still being written. `tables`: for StageSnapshot::tables.
  // `add` adds state of the stage that other objects hold (ReplicaExchange::AddState); null: there
  // is no such state. Errors: those of Stage::Snapshot and `add`.
  StatusOr<SharedSnapshot> TakeSnapshot(
      std::vector<NamedArray> tables = {},
      const std::function<Status(StageSnapshot* snapshot)>& add = nullptr);
  // Keeps `snapshot`, which was written as `files`.
  void Keep(SharedSnapshot snapshot, const std::vector<ShardFile>& files);

  // --- The training text, open and verified. `sha256`: the hash that names the text. TextOf
  // returns null if another text is open, or none.
  std::shared_ptr<WindowSource> TextOf(const std::string& sha256) const;
  void KeepText(const std::string& sha256, std::shared_ptr<WindowSource> text);

  // --- At the end of an attempt. Drops the unfinished step. `outcome`: the result of
  // Executor::Run. Returns OK if the model can be used again: `outcome` is OK, kCancelled or
  // kUnavailable. Returns an error if the model may be half changed: do not use it again.
  Status EndEpoch(const Status& outcome);

 private:
  const ResidentIdentity identity_;
  Stage* Newest() const;
  Status MakeTwin(uint64_t step);
  // Restores the stage and its twin.
  Status Restore(const StageSnapshot& snapshot);

  // model_ computes the passes of step `turns_from_` and of every second step after it.
  std::unique_ptr<Stage> model_, twin_;  // twin_ may be null
  uint64_t turns_from_ = 0;
  std::string text_sha256_;
  std::shared_ptr<WindowSource> text_;

  // The snapshot that was last written or loaded. The model has the same parameters if and only if
  // it has taken as many steps.
  struct Kept {
    ParametersOrigin origin;
    SharedSnapshot snapshot;  // null: not kept
  };
  mutable std::mutex mutex_;
  std::optional<Kept> kept_;
};

}  // namespace longhaul::worker
