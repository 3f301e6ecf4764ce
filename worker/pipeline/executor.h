// Runs one cell of one run: the policy of run/schedule chooses the next piece of work, and the
// executor carries it out when its inputs have arrived.
//
// The phases of a step (TrainStep):
//   passes      forwards and backwards, as their inputs arrive
//   sums        the tied matrix's gradient over the two stages that hold it; then gradients over
//               the data-parallel replicas, each of which gets the mean of its shard
//   agreement   the squared gradient norm goes from the last stage to the first, which sends the
//               final norm back with the decision to stop; between the two,
//               first stages send their norms to replica 0, which decides for all
//   optimizer   every stage clips and steps, or all skip the step if the norm is not finite and the
//               run file says so; each replica steps its shard, and all get all shards' parameters
//   state       the checkpoint writer gets a snapshot, if one is due
// Validation follows if it is due: through the codecs, and once more with fp32 boundaries if the
// codecs compress (ValidatesCleanAfter). Only replica 0 validates.
//
// If steps overlap (ScheduleTraits::overlaps_steps), passes of the next step begin before a step is
// done. They use parameters without that step's update, in ResidentStage's twin, and run whenever
// the executor would otherwise wait. Before a validation the pipeline drains.
//
// Threads: Run() on the compute thread (all LibTorch work happens there); RequestStop,
// RequestRetune and Abort from any thread. `report` is called on the compute
// thread and on the checkpoint writer's thread.
#pragma once

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
  uint32_t stages = 1;  // stages of the cell's replica
  Setting setting;
  uint64_t start_step = 0;  // number of steps already done
  uint64_t copy_every = 0;  // Assignment::copy_every
  uint64_t validation_tokens = 0;
  // True if a boundary of the cell's replica compresses activations.
  bool compresses_activations = false;
  uint64_t numerics = 0;              // value of v1::StepReport::numerics
  ResidentStage* resident = nullptr;  // not owned; outlives the executor
  std::unique_ptr<Batches> batches;   // first and last stage only
  // Ports of the cell's edges of activations, at most one to the stage before and one to the next.
  // Also the port of its tied edge, if another stage holds a matrix of this one.
  std::vector<std::shared_ptr<BoundaryPort>> ports;
  // Ports to the other replicas of the stage, and the exchange over them; empty without replicas.
  std::vector<std::shared_ptr<ReplicaPort>> replica_ports;
  std::unique_ptr<ReplicaExchange> exchange;
  std::shared_ptr<EventQueue> events;  // the queue that the ports push to
  CodecThread* codec_thread = nullptr;
  ShardStore* shards = nullptr;
  std::shared_ptr<TraceLog> trace;                // or null
  std::shared_ptr<WorkAtHand> work;               // null: no watchdog
  std::function<void(v1::WorkerMessage)> report;  // thread-safe; fills in run and epoch
};

class Executor {
 public:
  explicit Executor(ExecutorOptions options);
  ~Executor();

  // Runs until the last step, a stop, an abort or an error. OK: this stage has finished, its final
  // checkpoint, if due, is written, and StageFinished was reported. kCancelled: aborted.
  // kUnavailable: a neighbour is gone (see lost_edge()). Any other error: this stage failed.
  Status Run();

  void RequestStop() { events_->Push(StopRequested{}); }
  // A Retuned report answers it.
  void RequestRetune(const RetuneRequested& retune) { events_->Push(retune); }
  void Abort(Status reason) { events_->Push(AbortRequested{std::move(reason)}); }

  // The edge whose loss made Run() return kUnavailable.
  std::optional<EdgeId> lost_edge() const { return lost_edge_; }
  uint64_t step() const { return step_.value(); }

 private:
  bool first() const { return up_ == nullptr; }
  bool last() const { return down_ == nullptr; }

  Status Loop();
  // At the beginning of a step: applies a requested retune.
  Status RetuneIfDue();
  Status PreparePasses();
  void ReportRetuned();
  Status TrainStep();
  // --- The phases of a step, in order.
  Status RunPasses();
  Status SumGradients();
  Status SumOfTied();
  StatusOr<wire::StepMessage> AgreeOnNormAndDecisions();
  Status StepOptimizer(const wire::StepMessage& agreed);
  // --- With replicas (executor_replicas.cc).
  Status SumOverReplicas();
  // First stage only: takes its replica's norm, returns the decision for all replicas.
  StatusOr<wire::StepMessage> AgreeWithReplicas(wire::StepMessage own);
  Status StepWithReplicas(double learning_rate, double gradient_scale);
  // For replicas that train apart: the work after the optimizer.
  Status EndStepApart(const wire::StepMessage& agreed);
  Status AwaitMerge();
  bool steps_together() const { return options_.exchange && options_.exchange->steps_together(); }
  ReplicaPort& PortTo(uint32_t replica) const;
  Status Handle(ReplicaAgrees& said);
  wire::StepMessage Decide(double squared_norm);
  // Called when the norm is not finite.
  Status SkipOrFail(const wire::StepMessage& agreed);
  Status SaveState(const wire::StepMessage& agreed);
  Status CheckTied(const StageSnapshot& snapshot);

  Status Validate();
  // Returns the mean loss of a validation's `microbatches`; last stage only.
  StatusOr<double> Evaluate(PassKind kind, uint32_t microbatches);
  struct PassUnderWay {
    Pass pass;
    schedule::StagePolicy policy;
    double loss_sum = 0;  // last stage only
  };
  // Begins a pass, and gives it the tensors that arrived early.
  PassUnderWay Begin(const Pass& pass, const schedule::PolicyOptions& options) const;
  Status RunPass();  // runs now_, which is done afterwards
  schedule::PolicyOptions TrainingPolicy() const;
  // Returns now_ or next_, whichever is `pass`; null: neither.
  PassUnderWay* UnderWay(const Pass& pass);
  // False: no work could run.
  StatusOr<bool> RunWhatCan();
  Status RunWork(PassUnderWay* under_way, const schedule::Work& work);
  // Tells the port to the stage before how many gradients may leave, if the policy changed that.
  void LetGradientsLeave();
  Status RunForward(PassUnderWay* under_way, Slice slice);
  Status RunBackward(const Pass& pass, Slice slice);
  // Called on the checkpoint writer's thread. If a checkpoint could not be written, skips it and
  // tells the coordinator. If it was the last one, the stage fails.
  void CheckpointWritten(const SharedSnapshot& snapshot, bool interim,
                         const StatusOr<std::vector<ShardFile>>& files);
  void ForgetMessages();
  // Adds the bytes and times of the ranks' collectives since the last report. Adds nothing if the
  // stage has one rank.
  void AddCollectives(v1::StepReport* report);
  void AddExpertLoad(v1::StepReport* report) const;
  std::vector<EdgePort*> AllPorts() const;
  // `learning_rate`: 0 if no parameter was updated.
  void ReportStep(const wire::StepMessage& agreed, double learning_rate, bool skipped = false);

  // Handles an event: tensors go to `inputs_` or `gradients_` and to the policy of the current
  // pass, other events to their members.
  Status Handle(PipelineEvent& event);
  Status HandleAll(std::deque<PipelineEvent> events);
  // Waits for an event and handles it. `why`: WAIT_INPUT or WAIT_GRADIENT.
  Status WaitForEvent(v1::Span::Kind why);
  Status WaitForEvent(v1::Span::Kind why, WorkAtHand::Wait wait);
  Status WaitForAnyEvent();
  // Null for validation, which belongs to no step.
  TraceLog* TraceOf(const Pass& pass) const { return pass.trains() ? trace_.get() : nullptr; }

  ExecutorOptions options_;
  ResidentStage& resident_;
  BoundaryPort *up_ = nullptr, *down_ = nullptr;  // elements of options_.ports
  std::unique_ptr<TiedExchange> tied_;            // or null
  std::shared_ptr<EventQueue> events_;
  const std::shared_ptr<TraceLog> trace_;
  const std::shared_ptr<WorkAtHand> work_;
  // Step of the final checkpoint, which must not be skipped as no other follows. 0: not known yet.
  std::atomic<uint64_t> last_checkpoint_{0};
  std::unique_ptr<CheckpointWriter> checkpoint_writer_;

  Step step_{0};  // the current step, or the last one that is done
  // Passes of the step or of a validation. If steps overlap, next_ holds the next step's passes.
  std::optional<PassUnderWay> now_, next_;
  std::map<std::pair<Pass, Slice>, BoundaryTensor> inputs_, gradients_;
  std::optional<uint32_t> gradients_let_;  // the number last told to the port in this pass
  std::optional<RetuneRequested> retune_;  // waits for a step to begin
  // the last applied retune, and its first step
  std::optional<std::pair<uint64_t, Step>> retuned_;
  std::optional<NormArrived> norm_;
  std::optional<StepControlArrived> control_;
  // Messages by step and replica: for the current step, and for the next one in which replicas
  // agree.
  std::map<std::pair<Step, uint32_t>, wire::StepMessage> of_replicas_;
  bool stop_requested_ = false;
  // The neighbour that finished and left. An error only if this stage still needs something from
  // it.
  std::optional<PeerGone> gone_;
  std::optional<EdgeId> lost_edge_;

  uint32_t skipped_in_a_row_ = 0;  // skipped steps at the end of this attempt
  double loss_sum_ = 0;
  double own_squared_norm_ = 0;
  StepTimes times_;
  absl::Duration codec_busy_before_;  // before the current step
  CollectiveUse collectives_before_;
  uint32_t peak_in_flight_ = 0;
  MonoTime step_began_;
  absl::Duration norm_wait_, norm_turn_;  // values of v1::StepReport
  MonoTime mark_;                         // end of the step's time that is accounted for
};

}  // namespace longhaul::worker
