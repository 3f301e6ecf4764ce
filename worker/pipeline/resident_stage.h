// What lives as long as a stage's weights: the model with its optimizer and recorded passes, the
// last snapshot, and the text that it is trained on. Epochs come and go (an abort, a lost worker, a
// stop): one that wants the same stage of the same run goes on with the model that is there.
//
// Whether what is in memory is what a checkpoint says is proved by the content of its files, never
// by the step alone: a run that went on from an older checkpoint elsewhere has another history.
//
// Threads: the compute thread; Keep any.
#ifndef LONGHAUL_WORKER_PIPELINE_RESIDENT_STAGE_H_
#define LONGHAUL_WORKER_PIPELINE_RESIDENT_STAGE_H_

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

// What a stage was made for. An assignment that says the same can go on with it.
struct ResidentIdentity {
  RunId run;
  Group group;
  StageOptions options;
  bool has_replicas = false;    // which have more to go on with than the model has
  bool overlaps_steps = false;  // passes of two steps at a time: the stage has a twin
  // Keys of the run file that each step reads anew and no stage is made of (the rate, its schedule,
  // clipping, the number of steps) may differ.
  bool IsSame(const ResidentIdentity& other) const;
};

// The checkpoint that parameters are of.
struct ParametersOrigin {
  uint64_t step = 0;             // 0: untrained
  std::set<std::string> sha256;  // of the files that hold them, without those of tables
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
  // The one with the newest parameters; of a stage without a twin the only one.
  Stage& model() { return *Newest(); }
  // Computes the passes of `step`, and the validations after it. Where steps overlap this is the
  // stage and its twin in turn.
  Stage& ModelFor(Step step);
  // Before the update of `step`, whose passes are done: ModelFor(step) becomes the newest.
  Status TakeTurn(Step step);
  // Of its device's memory, between epochs: the model, and the snapshot where that is on the same
  // device, the CPU.
  uint64_t memory_bytes() const;

  // --- At an epoch's beginning.
  enum class Source : uint8_t {
    kParameters,  // they are as `origin` says
    kSnapshot,    // the last snapshot is of `origin`
    kFiles,       // neither: its files have to be read, or, for step 0, a model to be made
  };
  Source SourceOf(const ParametersOrigin& origin) const;
  // Before files are read: they would be a second snapshot in memory.
  void ForgetSnapshot();
  // Takes the parameters of `origin`, and makes the twin where it is wanted. `read`: its files, for
  // kFiles; else null.
  Status BeginFrom(const ParametersOrigin& origin, SharedSnapshot read);

  // The last one that was taken or read, where it is kept; else null.
  SharedSnapshot snapshot() const;

  // --- While it trains.
  // For a checkpoint. The snapshot before is given up first, so that memory holds one, or two where
  // that is still being written.
  // `tables`: StageSnapshot's. `add`: adds to the model's snapshot what others hold of the stage's
  // state (ReplicaExchange::AddState); or null.
  StatusOr<SharedSnapshot> TakeSnapshot(
      std::vector<NamedArray> tables = {},
      const std::function<Status(StageSnapshot* snapshot)>& add = nullptr);
  // `snapshot` was written as `files`.
  void Keep(SharedSnapshot snapshot, const std::vector<ShardFile>& files);

  // --- The text, opened and verified; null: another, or none yet. `sha256`: its content address.
  std::shared_ptr<WindowSource> TextOf(const std::string& sha256) const;
  void KeepText(const std::string& sha256, std::shared_ptr<WindowSource> text);

  // --- At its end. Drops the step under way. Not OK where the model may have been left half-way
  // through a change: then it must not be used again. `outcome`: what Executor::Run gave.
  Status EndEpoch(const Status& outcome);

 private:
  const ResidentIdentity identity_;
  Stage* Newest() const;
  Status MakeTwin(uint64_t step);
  // Of the stage and its twin.
  Status Restore(const StageSnapshot& snapshot);

  // The passes of step `turns_from_` and of every second one from there on are model_'s.
  std::unique_ptr<Stage> model_, twin_;  // twin_: or null
  uint64_t turns_from_ = 0;
  std::string text_sha256_;
  std::shared_ptr<WindowSource> text_;

  // Taken from the model or put into it, whichever came last. So the model has these parameters
  // exactly when it has taken as many steps.
  struct Kept {
    ParametersOrigin origin;
    SharedSnapshot snapshot;  // null: it is not kept
  };
  mutable std::mutex mutex_;
  std::optional<Kept> kept_;
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_PIPELINE_RESIDENT_STAGE_H_
