// What replicas of a stage do together (transport/replicas). One replica's end; the others are at
// the far ends of links. Either they take each step together: gradients go to the owners of shards,
// owners step these, parameters come back,
//
//   exchange->BeginBeside(step);     // optional, between the step's last two backwards
//   exchange->Begin(step);           // after the last one
//   ... until exchange->IsReduced(): ReplicaSaid goes to Take() ...
//   norm = exchange->AddSquaredNorm(sum);
//   exchange->StepOwn(step, rate, scale);      // or Skip(step), on all replicas
//   ... until exchange->IsDone(): ReplicaSaid goes to Take() ...
//   exchange->End(step);
//
// or they train apart for some steps (local-sgd), and what each has learned since is merged. What
// is sent for that may travel while the next steps run:
//
//   if (exchange->IsDue(step)) exchange->BeginMerge(step);       // the stage has taken the step
//   ... ReplicaSaid goes to Take() ...
//   if (exchange->MergeIsDue(step)) ... until exchange->IsMerged() ...
//
// A checkpoint is of replicas that are about to begin a merge, or have no merge under way.
//
// Threads: the compute thread calls; it borrows others to code. Merges are coded on a thread of
// their own, which sends. Errors: kInvalidArgument for a peer's message that cannot be, by Tell and
// IsMerged where replicas train apart; and those of the stage.
#ifndef LONGHAUL_WORKER_PIPELINE_REPLICA_EXCHANGE_H_
#define LONGHAUL_WORKER_PIPELINE_REPLICA_EXCHANGE_H_

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
#include "worker/stage/shard_optimizer.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

class ReplicaExchange {
 public:
  // Sends a message to a replica; never blocks.
  using Send = std::function<void(uint32_t replica, Step step, std::vector<std::byte> message)>;
  // Of a merge under way: OK when IsMerged gives true from now on, else why it cannot end.
  using Tell = std::function<void(const Status& status)>;

  // Of a stage that outlives it, with StageOptions::shares_step where replicas take steps together.
  // `begun_from`: the checkpoint that the stage was restored from; null: it is as the run begins.
  static StatusOr<std::unique_ptr<ReplicaExchange>> Create(Stage* stage,
                                                           const StageOptions& options,
                                                           const ReplicasSpec& replicas,
                                                           uint32_t replica, Send send, Tell tell,
                                                           const StageSnapshot* begun_from);
  virtual ~ReplicaExchange() = default;

  // Every step is taken together.
  virtual bool steps_together() const = 0;
  // Replicas agree after this step: on all of it, or those that train apart on what is to be done.
  virtual bool IsDue(Step step) const = 0;

  // --- Of replicas that train apart.
  virtual Status BeginMerge(Step step) = 0;
  // What the last merge that began sends has to be there before the next step. Of the last step of
  // all that is its own: then replicas are alike.
  virtual bool MergeIsDue(Step step) const = 0;
  // Takes in what has come, once it is all there. True also where no merge is under way.
  virtual StatusOr<bool> IsMerged() = 0;
  // The checkpoint that it begins from was taken before a merge, which is to begin now.
  virtual bool AwaitsMerge() const = 0;

  // --- Of those that take steps together.
  // Gradients that are final before the last backward has ended leave while it goes on, where the
  // stage can tell (Stage::TellWhatIsFinal). Nothing is lost where it is not called.
  virtual Status BeginBeside(Step step) = 0;
  // What that took so far, with the reducing and coding that it began inside the backward; each
  // second is told once.
  virtual absl::Duration TakeTimeBeside() = 0;
  virtual Status Begin(Step step) = 0;
  // Also before Begin or BeginMerge: another replica may be ahead.
  virtual Status Take(ReplicaSaid said) = 0;
  virtual bool IsReduced() const = 0;
  // `sum` plus that of the gradients' means that this replica owns, as
  // Stage::AddSquaredGradientNorm.
  virtual StatusOr<SquaredNorm> AddSquaredNorm(double sum) = 0;
  virtual Status StepOwn(Step step, double learning_rate, double gradient_scale) = 0;
  virtual Status Skip(Step step) = 0;
  virtual bool IsDone() const = 0;
  virtual Status End(Step step) = 0;

  // What a checkpoint has beside the stage's own snapshot. Its parameters are what all replicas
  // have alike; what each of those that train apart has made of them stands among the moments.
  virtual Status AddState(StageSnapshot* snapshot) = 0;
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_PIPELINE_REPLICA_EXCHANGE_H_
