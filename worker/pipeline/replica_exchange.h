// What replicas of a stage do together (transport/replicas). One replica's end; the others are at
// the far ends of links. Either they take each step together: gradients go to the owners of shards,
// owners step these, parameters come back,
//
//   exchange->BeginBeside(step);                  // the last backward follows, not the only one
//   exchange->Begin(step);                        // it is done
//   ... until exchange->IsReduced(): ReplicaSaid goes to Take() ...
//   norm = exchange->AddSquaredNorm(sum);
//   exchange->StepOwn(step, rate, scale);         // or Skip(step), on all replicas
//   ... until exchange->IsDone(): ReplicaSaid goes to Take() ...
//   exchange->End(step);
//
// or they train apart for some steps (local-sgd), and what each has learned since is merged:
//
//   if (exchange->IsDue(step)) exchange->BeginMerge(step);       // the stage has taken the step
//   ... until exchange->IsMerged(): ReplicaSaid goes to Take() ...
//
// Threads: the compute thread. Errors: kInvalidArgument for a peer's message that cannot be, and
// those of the stage.
#ifndef LONGHAUL_WORKER_PIPELINE_REPLICA_EXCHANGE_H_
#define LONGHAUL_WORKER_PIPELINE_REPLICA_EXCHANGE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

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

  // Of a stage that outlives it, with StageOptions::shares_step where replicas take steps together.
  // `begun_from`: the checkpoint that the stage was restored from; null: it is as the run begins.
  static StatusOr<std::unique_ptr<ReplicaExchange>> Create(Stage* stage,
                                                           const StageOptions& options,
                                                           const ReplicasSpec& replicas,
                                                           uint32_t replica, Send send,
                                                           const StageSnapshot* begun_from);
  virtual ~ReplicaExchange() = default;

  // Every step is taken together.
  virtual bool steps_together() const = 0;
  // Replicas are alike after this step.
  virtual bool IsDue(Step step) const = 0;

  // --- Of replicas that train apart.
  virtual Status BeginMerge(Step step) = 0;
  // Does what has become possible.
  virtual StatusOr<bool> IsMerged() = 0;

  // --- Of those that take steps together.
  // Gradients that are final before the last backward has ended leave while it goes on, where the
  // stage can tell (Stage::TellWhatIsFinal). Nothing is lost where it is not called.
  virtual Status BeginBeside(Step step) = 0;
  virtual Status Begin(Step step) = 0;
  // Also before Begin or BeginMerge: another replica may be ahead.
  virtual Status Take(ReplicaSaid said) = 0;
  virtual bool IsReduced() const = 0;
  // `sum` plus that of the gradients' means that this replica owns, as
  // Stage::AddSquaredGradientNorm.
  virtual SquaredNorm AddSquaredNorm(double sum) const = 0;
  virtual Status StepOwn(Step step, double learning_rate, double gradient_scale) = 0;
  virtual Status Skip(Step step) = 0;
  virtual bool IsDone() const = 0;
  virtual Status End(Step step) = 0;

  // What a checkpoint has beside the stage's own snapshot, after End.
  virtual StatusOr<std::vector<NamedArray>> State() = 0;
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_PIPELINE_REPLICA_EXCHANGE_H_
