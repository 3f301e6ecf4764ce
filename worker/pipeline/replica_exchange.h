// The exchange between the data-parallel replicas of a stage (transport/replicas), seen from one of
// them. Replicas either take each step together: each shard's owner collects gradients, steps the
// shard and sends the parameters back,
//
//   exchange->BeginBeside(step);     // optional, between the step's last two backwards
//   exchange->Begin(step);           // after the last one
//   ... until exchange->IsReduced(): ReplicaSaid goes to Take() ...
//   norm = exchange->AddSquaredNorm(sum);
//   exchange->StepOwn(step, rate, scale);      // or Skip(step), on all replicas
//   ... until exchange->IsDone(): ReplicaSaid goes to Take() ...
//   exchange->End(step);
//
// or they train apart for some steps (local-sgd) and then merge their parameters. A merge's
// messages may travel while the next steps run:
//
//   if (exchange->IsDue(step)) exchange->BeginMerge(step);       // the stage has taken the step
//   ... ReplicaSaid goes to Take() ...
//   if (exchange->MergeIsDue(step)) ... until exchange->IsMerged() ...
//
// A checkpoint is taken when replicas are about to begin a merge, or when no merge is in flight.
//
// Threads: called on the compute thread; codes on helper threads. Merges are coded and sent on a
// thread of their own. Errors: the stage's errors; kInvalidArgument for an impossible message of a
// peer. Replicas that train apart report that error by Tell and IsMerged.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/status.h"
#include "codec/thread_pool.h"
#include "run/file/run_spec.h"
#include "run/plan/plan.h"
#include "transport/replicas/host_arithmetic.h"
#include "transport/replicas/reducer.h"
#include "worker/pipeline/event_queue.h"
#include "worker/pipeline/replica_merges.h"
#include "worker/stage/replicas/shard_optimizer.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

class ReplicaExchange final : private replicas::Outbox {
 public:
  // Sends a message to a replica; never blocks.
  using SendTo = std::function<void(uint32_t replica, Step step, std::vector<std::byte> message)>;
  // Called when a merge can end: with OK if IsMerged returns true from now on, else with the reason
  // why the merge cannot end.
  using Tell = std::function<void(const Status& status)>;

  // `stage` outlives this object; StageOptions::shares_step is set if replicas take steps together.
  // `begun_from`: the checkpoint that the stage was restored from; null: untrained.
  static StatusOr<std::unique_ptr<ReplicaExchange>> Create(Stage* stage,
                                                           const StageOptions& options,
                                                           const ReplicasSpec& replicas,
                                                           uint32_t replica, SendTo send, Tell tell,
                                                           const StageSnapshot* begun_from);

  // Whether every step is taken together.
  bool steps_together() const { return !merges_; }
  // Whether replicas agree after this step: on the step itself, or, if they train apart, on the
  // next action.
  bool IsDue(Step step) const { return !merges_ || merges_->outer().IsDue(step.value()); }

  // --- For replicas that train apart.
  Status BeginMerge(Step step);
  // Whether the last merge must be complete before the next step begins. After the run's last step
  // this is the merge of that step, so all replicas end alike.
  bool MergeIsDue(Step step) const {
    return step.value() == options_.train.steps || merges_->outer().MergeIsDue(step.value());
  }
  // Applies the merge if all its messages have arrived. True also if no merge is in flight.
  StatusOr<bool> IsMerged();
  // Whether the run's first checkpoint was taken just before a merge, which must begin now.
  bool AwaitsMerge() const { return awaits_merge_; }

  // --- For replicas that take steps together.
  //
  // Sends gradients that are final before the last backward has ended, while that backward runs, if
  // the stage can tell (Stage::TellWhatIsFinal). Optional.
  Status BeginBeside(Step step);
  // Returns the time that BeginBeside's reducing and coding took inside the backward. Reports each
  // second once.
  absl::Duration TakeTimeBeside() { return std::exchange(time_beside_, absl::ZeroDuration()); }
  Status Begin(Step step);
  // May be called before Begin or BeginMerge, because another replica may be ahead.
  Status Take(ReplicaSaid said);
  bool IsReduced() const;
  // Adds the squares of the mean gradients that this replica owns to `sum`, as
  // Stage::AddSquaredGradientNorm does.
  StatusOr<SquaredNorm> AddSquaredNorm(double sum);
  Status StepOwn(Step step, double learning_rate, double gradient_scale);
  Status Skip(Step step);
  bool IsDone() const { return reducer_->IsDone(); }
  Status End(Step step) { return stage_->EndSharedStep(step); }

  // Adds the replicas' state to the stage's snapshot. The snapshot has the parameters that all
  // replicas share. Changes since then on a replica that trains apart are stored with the optimizer
  // state.
  Status AddState(StageSnapshot* snapshot);

 private:
  ReplicaExchange(Stage* stage, const StageOptions& options, const ReplicasSpec& replicas,
                  uint32_t replica, SendTo send);
  Status Prepare(const ReplicasSpec& spec, Tell tell, const StageSnapshot* begun_from);
  // Implements replicas::Outbox.
  Status Send(uint32_t to, replicas::MessageKind kind, std::vector<std::byte> message) override;
  // The arithmetic for the memory that holds the exchange's numbers.
  replicas::Arithmetic& arithmetic() { return on_device_ ? *on_device_ : in_host_; }
  uint32_t buckets() const { return static_cast<uint32_t>(reducer_->layout().buckets().size()); }
  // Returns the stage's parameters, in the order of the layout. kInternal if they differ from the
  // stage's descriptor.
  StatusOr<std::vector<SharedParameter>> Shared();
  Status MakeOptimizer(const std::vector<SharedParameter>& shared);
  Status BeginReducer(Step step);
  // Gives the gradients that a stage declared final: those of its blocks from `block` on.
  Status GiveFrom(uint32_t block);
  Status Restore(const StageSnapshot& snapshot);
  // Checkpoint name of a part of the reducer's state. Each replica has residuals of its own.
  std::string ArrayName(const std::string& state) const;
  std::string OwnName(const std::string& state) const;
  // Restores the locals of a checkpoint that was taken before a merge.
  Status RestoreLocals(const ArrayPieces& pieces);
  void AddLocals(StageSnapshot* snapshot);
  const std::string& NameOf(const replicas::Piece& piece) const {
    return reducer_->layout().parameters()[piece.parameter].name;
  }
  void AddMomenta(std::vector<NamedArray>* arrays);
  // Whether this stage counts the parameter in the norm. False if another stage that holds the
  // parameter counts it.
  bool CountsInNorm(const replicas::OwnPiece& piece) const {
    return !counted_elsewhere_[piece.piece.parameter];
  }

  Stage* const stage_;
  const StageOptions options_;
  const replicas::ParameterForm form_;
  const SendTo send_;
  const uint32_t replica_, steps_apart_;
  codec::ThreadPool pool_;
  replicas::HostArithmetic in_host_;
  std::unique_ptr<replicas::Arithmetic> on_device_;  // null: the exchange is in host memory
  std::unique_ptr<replicas::Reducer> reducer_;
  std::unique_ptr<ShardOptimizer> optimizer_;  // for replicas that take steps together
  std::optional<ReplicaMerges> merges_;        // for replicas that train apart
  bool awaits_merge_ = false;
  std::vector<bool> counted_elsewhere_;
  std::vector<uint32_t> final_with_;  // replicas::FinalWith
  // During the last backward of a step: buckets whose gradients were not yet given, from the last
  // bucket down.
  std::optional<uint32_t> buckets_left_;
  Status beside_;
  absl::Duration time_beside_;
  Step step_{0};
};

}  // namespace longhaul::worker
