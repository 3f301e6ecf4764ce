// Runs one cell of one run: the data-driven executor. run/schedule's policy says what is next; this
// drives it with real events.
//
// The phases of a step (TrainStep):
//   passes      forwards and backwards, as they become possible
//   sums        that of a tied matrix over the two stages that hold it; then gradients are reduced
//               over the replicas of the stage, each of which gets the mean of its shard
//   agreement   the squared gradient norm rides up from the last stage to the first, which passes
//               the final norm down, with the decisions to checkpoint and to stop; between them
//               first stages tell the first replica their norms, and that one decides for all
//   optimizer   every stage clips and steps; or none does, where the norm is not finite and the run
//               file says to skip such a step. Of replicas each steps its shard, and all get the
//               parameters of all shards
//   state       a snapshot goes to the checkpoint writer, where one is due
// Validation follows where it is due: through the codecs, and a second time with boundaries in fp32
// (ValidatesCleanAfter) where these compress. Of replicas the first one validates.
// Where steps overlap (ScheduleTraits::overlaps_steps) the passes of the next step begin while a step is not done:
// with parameters that do not have its update, in ResidentStage's twin. Whatever the executor waits
// for, it does that meanwhile. Before a validation the pipeline runs empty.
//
// Threads: Run() on the compute thread (all LibTorch work happens there); RequestStop,
// RequestCheckpoint, RequestRetune and Abort from any thread. Reports go to `report` on the compute
// thread, and from the checkpoint writer's thread.
#ifndef LONGHAUL_WORKER_PIPELINE_EXECUTOR_H_
#define LONGHAUL_WORKER_PIPELINE_EXECUTOR_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/status.h"
#include "longhaul/v1/worker.pb.h"
#include "run/file/run_spec.h"
#include "run/plan/plan.h"
#include "run/schedule/policy.h"
#include "worker/checkpoint/shard_store.h"
#include "worker/pipeline/batches.h"
#include "worker/pipeline/boundary_port.h"
#include "worker/pipeline/codec_thread.h"
#include "worker/pipeline/event_queue.h"
#include "worker/pipeline/replica_exchange.h"
#include "worker/pipeline/replica_port.h"
#include "worker/pipeline/resident_stage.h"
#include "worker/pipeline/step_times.h"
#include "worker/pipeline/trace_log.h"
#include "worker/pipeline/work_at_hand.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

class CheckpointWriter;
class TiedExchange;

struct ExecutorOptions {
  RunSpec spec;
  RunId run;
  CellId cell;
  uint32_t stages = 1;  // of the cell's replica
  Setting setting;
  uint64_t start_step = 0;  // steps that are done
  uint64_t copy_every = 0;  // Assignment::copy_every
  uint64_t validation_tokens = 0;
  // Some boundary of the cell's replica does not carry activations as they are.
  bool compresses_activations = false;
  uint64_t numerics = 0;              // v1::StepReport's
  ResidentStage* resident = nullptr;  // not owned; outlives the executor
  std::unique_ptr<Batches> batches;   // first and last stage
  // Of the cell's edges of activations: at most one up and one down. The first stage has none up,
  // the last one none down. And of its tied edge, where another stage holds a matrix of this one's.
  std::vector<std::shared_ptr<BoundaryPort>> ports;
  // Where the stage has replicas: to each other one, and what goes over them.
  std::vector<std::shared_ptr<ReplicaPort>> replica_ports;
  std::unique_ptr<ReplicaExchange> exchange;
  std::shared_ptr<EventQueue> events;  // the one that the ports push to
  CodecThread* codec_thread = nullptr;
  ShardStore* shards = nullptr;
  std::shared_ptr<TraceLog> trace;                // or null
  std::shared_ptr<WorkAtHand> work;               // or null: nobody watches
  std::function<void(v1::WorkerMessage)> report;  // thread-safe; fills in run and epoch
};

class Executor {
 public:
  explicit Executor(ExecutorOptions options);
  ~Executor();

  // Until the last step, a stop, an abort or an error. OK: this stage has finished and its
  // checkpoint, if one is due, is written (StageFinished was reported). kCancelled: aborted.
  // kUnavailable: a neighbour is gone (lost_edge() says which). Else: this stage failed.
  Status Run();

  void RequestStop() { events_->Push(StopRequested{}); }
  void RequestCheckpoint() { events_->Push(CheckpointRequested{}); }
  // Answered by a Retuned report.
  void RequestRetune(const RetuneRequested& retune) { events_->Push(retune); }
  void Abort(Status reason) { events_->Push(AbortRequested{std::move(reason)}); }

  // After Run() gave kUnavailable.
  std::optional<EdgeId> lost_edge() const { return lost_edge_; }
  uint64_t step() const { return step_.value(); }

 private:
  bool first() const { return up_ == nullptr; }
  bool last() const { return down_ == nullptr; }

  Status Loop();
  // At a step's beginning: takes what was asked for.
  Status RetuneIfDue();
  Status PreparePasses();
  void ReportRetuned();
  Status TrainStep();
  // --- Its phases, in order.
  Status RunPasses();
  Status SumGradients();
  Status SumOfTied();
  StatusOr<wire::StepMessage> AgreeOnNormAndDecisions();
  Status StepOptimizer(const wire::StepMessage& agreed);
  // --- With replicas (executor_replicas.cc).
  Status SumOverReplicas();
  // Of the first stage: takes its replica's norm, gives what is decided for all.
  StatusOr<wire::StepMessage> AgreeWithReplicas(wire::StepMessage own);
  Status StepWithReplicas(double learning_rate, double gradient_scale);
  // Of replicas that train apart: what follows the optimizer.
  Status EndStepApart(const wire::StepMessage& agreed);
  Status AwaitMerge();
  bool steps_together() const { return options_.exchange && options_.exchange->steps_together(); }
  ReplicaPort& PortTo(uint32_t replica) const;
  Status Handle(ReplicaAgrees& said);
  wire::StepMessage Decide(double squared_norm);
  // Of a norm that is not finite.
  Status SkipOrFail(const wire::StepMessage& agreed);
  Status SaveState(const wire::StepMessage& agreed);
  Status CheckTied(const StageSnapshot& snapshot);

  Status Validate();
  // The mean loss of a validation's `microbatches`; at the last stage alone.
  StatusOr<double> Evaluate(PassKind kind, uint32_t microbatches);
  struct PassUnderWay {
    Pass pass;
    schedule::StagePolicy policy;
    double loss_sum = 0;  // of the last stage
  };
  // With what came early.
  PassUnderWay Begin(const Pass& pass, const schedule::PolicyOptions& options) const;
  Status RunPass();  // now_, which it leaves done
  schedule::PolicyOptions TrainingPolicy() const;
  // now_ or next_; null: neither.
  PassUnderWay* UnderWay(const Pass& pass);
  // False: nothing could run.
  StatusOr<bool> RunWhatCan();
  Status RunWork(PassUnderWay* under_way, const schedule::Work& work);
  // Tells the port above what the policy says of gradients, where that has changed.
  void LetGradientsLeave();
  Status RunForward(PassUnderWay* under_way, Slice slice);
  Status RunBackward(const Pass& pass, Slice slice);
  // On the checkpoint writer's thread. One that could not be written is skipped, and the
  // coordinator told, unless it is the last one: then the stage fails.
  void CheckpointWritten(const SharedSnapshot& snapshot, bool interim,
                         const StatusOr<std::vector<ShardFile>>& files);
  void ForgetMessages();
  // What ranks exchanged since the last report. Nothing where the stage has one.
  void AddCollectives(v1::StepReport* report);
  void AddExpertLoad(v1::StepReport* report) const;
  std::vector<EdgePort*> AllPorts() const;
  // `learning_rate`: 0 where nothing was updated.
  void ReportStep(const wire::StepMessage& agreed, double learning_rate, bool skipped = false);

  // Takes an event in: tensors to `inputs_`/`gradients_` (and to the policy of the pass under way),
  // the rest to their places.
  Status Handle(PipelineEvent& event);
  Status HandleAll(std::deque<PipelineEvent> events);
  // Waits for one event and handles it. `why`: WAIT_INPUT or WAIT_GRADIENT.
  Status WaitForEvent(v1::Span::Kind why);
  Status WaitForEvent(v1::Span::Kind why, WorkAtHand::Wait wait);
  Status WaitForAnyEvent();
  // Null for validation, which is not part of any step.
  TraceLog* TraceOf(const Pass& pass) const { return pass.trains() ? trace_.get() : nullptr; }

  ExecutorOptions options_;
  ResidentStage& resident_;
  BoundaryPort *up_ = nullptr, *down_ = nullptr;  // of options_.ports
  std::unique_ptr<TiedExchange> tied_;            // or null
  std::shared_ptr<EventQueue> events_;
  const std::shared_ptr<TraceLog> trace_;
  const std::shared_ptr<WorkAtHand> work_;
  // The step of a checkpoint that must not be skipped, because no other will follow; 0: none yet.
  std::atomic<uint64_t> last_checkpoint_{0};
  std::unique_ptr<CheckpointWriter> checkpoint_writer_;

  Step step_{0};  // under way, or the last one done
  // The passes of the step, or of a validation; and where steps overlap those of the next step.
  std::optional<PassUnderWay> now_, next_;
  std::map<std::pair<Pass, Slice>, BoundaryTensor> inputs_, gradients_;
  std::optional<uint32_t> gradients_let_;             // what the port was told last in this pass
  std::optional<RetuneRequested> retune_;             // waits for a step
  std::optional<std::pair<uint64_t, Step>> retuned_;  // the newest that was taken, since when
  std::optional<NormArrived> norm_;
  std::optional<StepControlArrived> control_;
  // By step and replica; of the step under way, and of the next one in which replicas agree.
  std::map<std::pair<Step, uint32_t>, wire::StepMessage> of_replicas_;
  bool stop_requested_ = false, checkpoint_requested_ = false;
  // A neighbour that left in good order is an error only if something is still needed from it.
  std::optional<PeerGone> gone_;
  std::optional<EdgeId> lost_edge_;

  uint32_t skipped_in_a_row_ = 0;  // the newest steps of this epoch
  double loss_sum_ = 0;
  double own_squared_norm_ = 0;
  StepTimes times_;
  absl::Duration codec_busy_before_;  // the step under way
  CollectiveUse collectives_before_;
  uint32_t peak_in_flight_ = 0;
  MonoTime step_began_;
  absl::Duration norm_wait_, norm_turn_;  // v1::StepReport's
  MonoTime mark_;                         // until when the step's time is accounted for
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_PIPELINE_EXECUTOR_H_
