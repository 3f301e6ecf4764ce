// Everything that lives as long as a stage's weights: the model with optimizer state and CUDA
// graphs, the last snapshot, and the open training text. Attempts at a run ("epochs") come and go
// with aborts, lost workers and stops; an attempt that needs the same stage of the same run reuses
// this object.
//
// The content of a checkpoint's files proves whether memory matches the checkpoint. The step alone
// does not, because a run that continued elsewhere from an older checkpoint has another history.
//
// Threads: the compute thread; Keep on any.
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

// The properties that a stage was made for. An assignment with the same identity can reuse the
// stage.
struct ResidentIdentity {
  RunId run;
  Group group;
  StageOptions options;
  bool has_replicas = false;    // replicas have more state than the model
  bool overlaps_steps = false;  // passes of two steps overlap: the stage has a twin
  // Whether a stage that was made for this identity serves `other`. Keys of the run file that do
  // not affect the stage (run/file/keys.h) may differ.
  bool IsSame(const ResidentIdentity& other) const;
};

// The checkpoint that the parameters come from.
struct ParametersOrigin {
  uint64_t step = 0;             // 0: untrained
  std::set<std::string> sha256;  // hashes of its files, without the files of token tables
  friend bool operator==(const ParametersOrigin&, const ParametersOrigin&) = default;
};
ParametersOrigin OriginOf(uint64_t step, const std::vector<ShardFile>& files);

using SharedSnapshot = std::shared_ptr<const StageSnapshot>;

class ResidentStage {
 public:
  static StatusOr<std::unique_ptr<ResidentStage>> Create(
      ResidentIdentity identity, const MakeStage& make_stage = Stage::Create);
  // `model` is untrained.
  ResidentStage(ResidentIdentity identity, std::unique_ptr<Stage> model);

  const ResidentIdentity& identity() const { return identity_; }
  // The stage with the newest parameters. Without a twin, the only one.
  Stage& model() { return *Newest(); }
  // The stage that computes the passes of `step` and the validations after it. If steps overlap,
  // the stage and its twin alternate.
  Stage& ModelFor(Step step);
  // Makes ModelFor(step) the newest, before the update of `step`. Its passes must be done.
  Status TakeTurn(Step step);
  // Device memory held between attempts: the model's, and the snapshot's if the device is the CPU.
  uint64_t memory_bytes() const;

  // --- At the beginning of an attempt.
  enum class Source : uint8_t {
    kParameters,  // memory has the parameters of `origin`
    kSnapshot,    // the last snapshot is from `origin`
    kFiles,       // neither: read its files, or make a model for step 0
  };
  Source SourceOf(const ParametersOrigin& origin) const;
  // Frees the snapshot. Call it before files are read, which would be a second snapshot in memory.
  void ForgetSnapshot();
  // Takes the parameters of `origin`, and makes the twin if needed. `read`: for kFiles, the
  // contents of the files; else null.
  Status BeginFrom(const ParametersOrigin& origin, SharedSnapshot read);

  // Returns the snapshot that was last taken or read, if it is kept; else null.
  SharedSnapshot snapshot() const;

  // --- While it trains.
  //
  // Takes a snapshot for a checkpoint. Drops the previous one first, so memory holds one snapshot,
  // or two while the previous one is still being written. `tables`: StageSnapshot's. `add`: adds
  // state that other objects hold for the stage (ReplicaExchange::AddState); or null.
  StatusOr<SharedSnapshot> TakeSnapshot(
      std::vector<NamedArray> tables = {},
      const std::function<Status(StageSnapshot* snapshot)>& add = nullptr);
  // Records that `snapshot` was written as `files`.
  void Keep(SharedSnapshot snapshot, const std::vector<ShardFile>& files);

  // --- The training text, open and verified. Null: another text is open, or none. `sha256`: the
  // text's content address.
  std::shared_ptr<WindowSource> TextOf(const std::string& sha256) const;
  void KeepText(const std::string& sha256, std::shared_ptr<WindowSource> text);

  // --- At the end of an attempt. Drops the unfinished step. `outcome`: the result of
  // Executor::Run. Returns an error if the model may be half changed: then the model must not be
  // used again.
  Status EndEpoch(const Status& outcome);

 private:
  const ResidentIdentity identity_;
  Stage* Newest() const;
  Status MakeTwin(uint64_t step);
  // Restores the stage and its twin.
  Status Restore(const StageSnapshot& snapshot);

  // model_ computes the passes of step `turns_from_` and of every second step after it.
  std::unique_ptr<Stage> model_, twin_;  // twin_: or null
  uint64_t turns_from_ = 0;
  std::string text_sha256_;
  std::shared_ptr<WindowSource> text_;

  // The snapshot last taken from the model or loaded into it. The model has the snapshot's
  // parameters exactly if it has taken as many steps.
  struct Kept {
    ParametersOrigin origin;
    SharedSnapshot snapshot;  // null: not kept
  };
  mutable std::mutex mutex_;
  std::optional<Kept> kept_;
};

}  // namespace longhaul::worker
