// The exchange between the data-parallel replicas of a stage (transport/replicas), as one replica
// sees it. Each replica owns a shard, a part of the stage's parameters. There are two ways to
// train. Replicas may take each step together: the owner of a shard collects the shard's gradients,
// updates its parameters and sends them to the others.
//
//   exchange->BeginBeside(step);     // optional, before the step's last backward
//   exchange->Begin(step);           // after the step's last backward
//   ... until exchange->IsReduced(): ReplicaSaid goes to Take() ...
//   norm = exchange->AddSquaredNorm(sum);
//   exchange->StepOwn(step, rate, scale);      // or Skip(step), on all replicas
//   ... until exchange->IsDone(): ReplicaSaid goes to Take() ...
//   exchange->End(step);
//
// Or replicas train apart (local-sgd): each updates all its parameters for some steps, then they
// merge their parameters. The messages of a merge may travel while the next steps run:
//
//   if (exchange->IsDue(step)) exchange->BeginMerge(step);       // after the update of the step
//   ... ReplicaSaid goes to Take() ...
//   if (exchange->MergeIsDue(step)) ... until exchange->IsMerged() ...
//
// A checkpoint is taken while no merge is in flight: before a merge begins, or after it has ended.
//
// Threads: called on the compute thread, which uses helper threads to encode and decode. Merges are
// coded and sent on a thread of their own. Errors: those of the stage; kInvalidArgument for an
// impossible message of a peer. If replicas train apart, Tell and IsMerged report that error.
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
  // Sends a message to a replica. Must not block. Called on the compute thread; for merges, on the
  // thread of merges.
  using SendTo = std::function<void(uint32_t replica, Step step, std::vector<std::byte> message)>;
  // Called on the thread of merges: with OK when IsMerged will return true, else with the reason
  // why the merge cannot end.
  using Tell = std::function<void(const Status& status)>;

  // `stage` must outlive this object. StageOptions::shares_step must be set if replicas take steps
  // together. `replica`: the index of this replica. `tell` is used only if replicas train apart.
  // `begun_from`: the checkpoint that the stage was restored from, read only during the call; null:
  // the run begins. kInternal: the stage has other parameters than its options say.
  static StatusOr<std::unique_ptr<ReplicaExchange>> Create(Stage* stage,
                                                           const StageOptions& options,
                                                           const ReplicasSpec& replicas,
                                                           uint32_t replica, SendTo send, Tell tell,
                                                           const StageSnapshot* begun_from);

  // Returns true if replicas take steps together, false if they train apart.
  bool steps_together() const { return !merges_; }
  // Returns true if replicas must agree on the decisions of `step`. They must in every step; if
  // they train apart, only in the steps after which they merge.
  bool IsDue(Step step) const { return !merges_ || merges_->outer().IsDue(step.value()); }

  // --- For replicas that train apart.
  //
  // Begins the merge of this replica's current parameters, after the update of `step`. No other
  // merge may be in flight.
  Status BeginMerge(Step step);
  // Returns true if the merge in flight must end before the next step begins. True after the run's
  // last step, so that all replicas end with the same parameters.
  bool MergeIsDue(Step step) const {
    return step.value() == options_.train.steps || merges_->outer().MergeIsDue(step.value());
  }
  // If all messages of the merge have arrived, ends the merge and changes the stage's parameters.
  // Returns true if no merge is in flight now.
  StatusOr<bool> IsMerged();
  // Returns true if the checkpoint `begun_from` was taken just before a merge. Then BeginMerge must
  // be called before the next step.
  bool AwaitsMerge() const { return awaits_merge_; }

  // --- For replicas that take steps together.
  //
  // Lets gradients be sent during the step's last backward, as soon as they are final. Does nothing
  // if the stage cannot tell what is final (Stage::TellWhatIsFinal). Call it before that backward.
  Status BeginBeside(Step step);
  // Returns how long this exchange worked in BeginBeside and during backwards, since the last call
  // of TakeTimeBeside.
  absl::Duration TakeTimeBeside() { return std::exchange(time_beside_, absl::ZeroDuration()); }
  // Sends all gradients that were not sent yet. Call it after the step's last backward.
  Status Begin(Step step);
  // Takes a message of another replica, even before Begin or BeginMerge, because that replica may
  // be ahead. Also for replicas that train apart.
  Status Take(ReplicaSaid said);
  // Returns true if all gradients for this replica's shard have arrived.
  bool IsReduced() const;
  // Adds the squares of the mean gradients of this replica's shard to `sum`, as
  // Stage::AddSquaredGradientNorm does for a whole stage.
  StatusOr<SquaredNorm> AddSquaredNorm(double sum);
  // Updates this replica's shard and sends its parameters. Call it when IsReduced(). The gradients
  // are multiplied by `gradient_scale` first.
  Status StepOwn(Step step, double learning_rate, double gradient_scale);
  // Ends the step without an update, in place of StepOwn and End. All replicas must skip the same
  // steps.
  Status Skip(Step step);
  // Returns true if the parameters of all shards have arrived.
  bool IsDone() const { return reducer_->IsDone(); }
  // Ends an updated step: the stage takes the new parameters. Call it when IsDone().
  Status End(Step step) { return stage_->EndSharedStep(step); }

  // Adds the state of this exchange to a snapshot of the stage. If replicas train apart, the
  // snapshot's parameters become those of the last merge, which all replicas have, and the
  // replica's own parameters go to the optimizer state.
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
  // Returns the stage's parameters in the order of the layout. kInternal: the stage has others.
  StatusOr<std::vector<SharedParameter>> Shared();
  Status MakeOptimizer(const std::vector<SharedParameter>& shared);
  Status BeginReducer(Step step);
  // Gives the reducer the gradients that the stage declared final: those of its blocks from `block`
  // on.
  Status GiveFrom(uint32_t block);
  Status Restore(const StageSnapshot& snapshot);
  // ArrayName returns the name in a checkpoint for a part of the reducer's state. OwnName returns a
  // name with the number of this replica, for state that differs between replicas.
  std::string ArrayName(const std::string& state) const;
  std::string OwnName(const std::string& state) const;
  // Restores or adds the replica's own parameters, for a checkpoint that is taken before a merge.
  Status RestoreLocals(const ArrayPieces& pieces);
  void AddLocals(StageSnapshot* snapshot);
  const std::string& NameOf(const replicas::Piece& piece) const {
    return reducer_->layout().parameters()[piece.parameter].name;
  }
  void AddMomenta(std::vector<NamedArray>* arrays);
  // False: another stage that holds the parameter counts it in the norm.
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
  // During the last backward of a step: number of buckets whose gradients the reducer did not get
  // yet. It gets the last bucket first.
  std::optional<uint32_t> buckets_left_;
  Status beside_;  // the first error inside that backward
  absl::Duration time_beside_;
  Step step_{0};
};

}  // namespace longhaul::worker
