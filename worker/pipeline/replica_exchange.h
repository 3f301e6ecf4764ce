// What the data-parallel replicas of a stage do together (transport/replicas), seen from one of
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
// or they train apart for some steps (local-sgd) and then merge what they learned. A merge's
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
// peer, which replicas that train apart report by Tell and IsMerged.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "base/status.h"
#include "run/file/run_spec.h"
#include "run/plan/plan.h"
#include "transport/replicas/reducer.h"
#include "worker/pipeline/event_queue.h"
#include "worker/stage/replicas/shard_optimizer.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

class ReplicaExchange {
 public:
  // Sends a message to a replica; never blocks.
  using Send = std::function<void(uint32_t replica, Step step, std::vector<std::byte> message)>;
  // Called when a merge can end: with OK if IsMerged gives true from now on, else with the reason
  // why it cannot end.
  using Tell = std::function<void(const Status& status)>;

  // `stage` outlives it; with StageOptions::shares_step if replicas take steps together.
  // `begun_from`: the checkpoint that the stage was restored from; null: untrained.
  static StatusOr<std::unique_ptr<ReplicaExchange>> Create(Stage* stage,
                                                           const StageOptions& options,
                                                           const ReplicasSpec& replicas,
                                                           uint32_t replica, Send send, Tell tell,
                                                           const StageSnapshot* begun_from);
  virtual ~ReplicaExchange() = default;

  // Whether every step is taken together.
  virtual bool steps_together() const = 0;
  // Whether replicas agree after this step: on the step itself, or, when they train apart, on what
  // to do next.
  virtual bool IsDue(Step step) const = 0;

  // --- For replicas that train apart.
  virtual Status BeginMerge(Step step) = 0;
  // Whether the last merge must be complete before the next step begins. After the run's last step
  // this is its own merge, so all replicas end alike.
  virtual bool MergeIsDue(Step step) const = 0;
  // Applies the merge if all its messages have arrived. True also if no merge is in flight.
  virtual StatusOr<bool> IsMerged() = 0;
  // Whether the run's first checkpoint was taken just before a merge, which must begin now.
  virtual bool AwaitsMerge() const = 0;

  // --- For replicas that take steps together.
  //
  // Sends gradients that are final before the last backward has ended while that backward runs, if
  // the stage can tell (Stage::TellWhatIsFinal). Optional.
  virtual Status BeginBeside(Step step) = 0;
  // Time that BeginBeside's reducing and coding took inside the backward. Each second is reported
  // once.
  virtual absl::Duration TakeTimeBeside() = 0;
  virtual Status Begin(Step step) = 0;
  // May come before Begin or BeginMerge, as another replica may be ahead.
  virtual Status Take(ReplicaSaid said) = 0;
  virtual bool IsReduced() const = 0;
  // Adds the squares of the mean gradients that this replica owns to `sum`, as
  // Stage::AddSquaredGradientNorm does.
  virtual StatusOr<SquaredNorm> AddSquaredNorm(double sum) = 0;
  virtual Status StepOwn(Step step, double learning_rate, double gradient_scale) = 0;
  virtual Status Skip(Step step) = 0;
  virtual bool IsDone() const = 0;
  virtual Status End(Step step) = 0;

  // Adds the replicas' state to the stage's snapshot. The snapshot's parameters are those that all
  // replicas share; what a replica that trains apart has changed since is stored with the optimizer
  // state.
  virtual Status AddState(StageSnapshot* snapshot) = 0;
};

}  // namespace longhaul::worker
