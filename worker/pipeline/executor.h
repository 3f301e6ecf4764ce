// Trains one cell of a run (a stage of one replica). A policy (run/schedule) chooses the next piece
// of work: the forward or the backward pass of a slice. The executor runs that work when the work's
// inputs have arrived.
//
// The phases of a step (TrainStep):
//   passes      forwards and backwards, as their inputs arrive
//   sums        the two stages that hold a tied matrix sum its gradient; then the data-parallel
//               replicas of the stage sum gradients, and each gets the mean for its own shard
//   agreement   the squared gradient norm is summed from the last stage to the first. With
//               replicas, their first stages send their norms to replica 0, which decides for
//               all. Then the final norm and the decision to stop go from the first stage to
//               the last
//   optimizer   each stage clips its gradients and updates its parameters. With replicas, each
//               updates its own shard and sends it to the others. If the norm is not finite, all
//               stages skip the update or fail, as the run file says
//   state       the checkpoint writer gets a snapshot, if one is due
// Replicas that train apart (local-sgd) update all their parameters themselves. After the optimizer
// phase of some steps they merge (replica_exchange.h).
//
// Samples follow a step and its validation, if the run file says so (SamplesAfter) or somebody has
// asked for them: the pipeline continues texts, one pass of kind kSampling for each token
// (sample_round.h). The first stage begins a round with a message that goes down. The last stage
// takes the tokens, and they go up from stage to stage. Only replica 0 samples.
//
// If a validation is due, it follows the step. Its activations pass through the codecs. If the
// codecs compress, a second, clean validation with fp32 boundaries may follow
// (ValidatesCleanAfter). Only replica 0 validates.
//
// If steps overlap (ScheduleTraits::overlaps_steps), passes of the next step begin before the
// current step is done. They run when the executor would otherwise wait, in the stage's twin
// (ResidentStage). The twin's parameters do not have the current step's update yet. A step that a
// validation follows does not overlap with the next step. If the run is stopped when the next step
// has begun, that one is the last.
//
// Threads: Run on the compute thread, which does all LibTorch work; RequestStop, RequestRetune and
// Abort on any thread. The compute thread and the checkpoint writer's thread call `report`.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "base/status.h"
#include "longhaul/v1/worker.pb.h"
#include "run/file/run_spec.h"
#include "run/plan/plan.h"
#include "run/schedule/policy.h"
#include "run/tokens/sample_text.h"
#include "worker/checkpoint/shard_store.h"
#include "worker/pipeline/batches.h"
#include "worker/pipeline/boundary_port.h"
#include "worker/pipeline/checkpoint_writer.h"
#include "worker/pipeline/codec_thread.h"
#include "worker/pipeline/event_queue.h"
#include "worker/pipeline/input_recorder.h"
#include "worker/pipeline/rehearsal.h"
#include "worker/pipeline/replica_exchange.h"
#include "worker/pipeline/replica_port.h"
#include "worker/pipeline/resident_stage.h"
#include "worker/pipeline/step_digests.h"
#include "worker/pipeline/step_times.h"
#include "worker/pipeline/trace_log.h"
#include "worker/pipeline/work_at_hand.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

class SampleRound;
class TiedExchange;

struct ExecutorOptions {
  RunSpec spec;
  RunId run;
  CellId cell;
  uint32_t stages = 1;      // stages of the cell's replica
  Setting setting;          // at the start; RequestRetune changes it
  uint64_t start_step = 0;  // number of steps already done
  uint64_t copy_every = 0;  // steps between copies of the state for recovery; 0: no copies
  // Ends after this step with a checkpoint, as after a stop; nullopt: trains to the last step.
  std::optional<Step> ends_after;
  uint64_t validation_tokens = 0;  // tokens of the validation text; 0: no validation
  // True if a boundary of the cell's replica compresses activations.
  bool compresses_activations = false;
  uint32_t vocabulary = 0;                // number of token ids
  std::optional<SampleText> sample_text;  // makes text of sampled tokens; nullopt: nothing does
  uint64_t numerics = 0;  // fingerprint for step reports (worker/epoch/numerics.h); 0: none
  ResidentStage* resident = nullptr;  // not owned; must outlive the executor
  std::unique_ptr<Batches> batches;   // null if the stage reads no text
  // The ports to the previous and the next stage, and the port of the tied edge if this stage
  // shares a tied matrix with another stage.
  std::vector<std::shared_ptr<BoundaryPort>> ports;
  // The ports to the other replicas of the stage, and the exchange over these ports. Empty and null
  // without replicas.
  std::vector<std::shared_ptr<ReplicaPort>> replica_ports;
  std::unique_ptr<ReplicaExchange> exchange;
  std::shared_ptr<EventQueue> events;             // the queue that the ports push to
  std::shared_ptr<InputRecorder> recorder;        // the ports' one; null: nothing is recorded
  CodecThread* codec_thread = nullptr;            // not owned; must outlive the executor
  ShardStore* shards = nullptr;                   // not owned; must outlive the executor
  std::shared_ptr<TraceLog> trace;                // null: nobody reads the trace
  std::shared_ptr<WorkAtHand> work;               // for a watchdog; null: nobody watches
  std::function<void(v1::WorkerMessage)> report;  // thread-safe; fills in the run and the epoch
  std::shared_ptr<const DigestSigner> digests;    // null: reports have no digests
  // Implausible tensors that pass: step, edge, direction.
  std::set<std::tuple<uint64_t, EdgeId, Direction>> accepted_outliers;
  std::shared_ptr<Rehearsal> rehearsal;  // null: nothing is rehearsed
};

class Executor {
 public:
  explicit Executor(ExecutorOptions options);
  ~Executor();

  // Trains until the last step, a stop, an abort or an error. OK: this stage has finished and
  // reported StageFinished; if a final checkpoint is due, it is written. kCancelled: Abort was
  // called. kUnavailable: a neighbour is gone (lost_edge()). Any other error: this stage failed.
  Status Run();

  // Makes all stages stop at the end of the step in which the next decision is made (phase
  // agreement). Has an effect only at the first stage of replica 0, which decides for all.
  void RequestStop() { events_->Push(StopRequested{}); }
  // Takes samples after a step, and reports them or why there are none. Has an effect only at the
  // first stage of replica 0.
  void RequestSamples(SamplesRequested request) { events_->Push(std::move(request)); }
  // Changes the setting when the next step begins, and reports Retuned then. A request with the id
  // of the last applied one changes nothing, and is reported again.
  void RequestRetune(const RetuneRequested& retune) { events_->Push(retune); }
  // Makes Run() return kCancelled soon.
  void Abort(Status reason) { events_->Push(AbortRequested{std::move(reason)}); }

  // Call these two on the thread of Run(). lost_edge: the edge whose loss made Run() return
  // kUnavailable; else nullopt. step: the current step, or the last one that is done.
  std::optional<EdgeId> lost_edge() const { return lost_edge_; }
  uint64_t step() const { return step_.value(); }

 private:
  bool first() const { return up_ == nullptr; }
  bool last() const { return down_ == nullptr; }

  Status Loop();
  // Applies a requested retune. Called at the beginning of a step.
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
  // --- Verification (executor_verify.cc).
  // Compares the state with what it was after the last step. If they differ, reports that and, as
  // the run file says, waits for the end of the epoch: kDataLoss.
  Status CheckState();
  Status NoteState();  // after the update
  void AddDigests(v1::StepReport* report);
  Status Handle(TensorDoubted& doubted);
  // Waits for the end of the epoch if a tensor of this step is in doubt: kCancelled.
  Status AwaitVerdict();
  void ReportFinding(v1::Finding finding);
  // --- With replicas (executor_replicas.cc).
  Status SumOverReplicas();
  // Takes the norm of this replica, and returns the decision for all replicas. First stage only.
  StatusOr<wire::StepMessage> AgreeWithReplicas(wire::StepMessage own);
  Status StepWithReplicas(double learning_rate, double gradient_scale);
  // Saves the state and merges, as far as they are due. For replicas that train apart.
  Status EndStepApart();
  Status AwaitMerge();
  bool steps_together() const { return options_.exchange && options_.exchange->steps_together(); }
  ReplicaPort& PortTo(uint32_t replica) const;
  Status Handle(ReplicaAgrees& said);
  wire::StepMessage Decide(double squared_norm);
  // Skips the update or fails, as the run file says; fails too after kMostSkippedInARow skipped
  // steps in a row. Called when the norm is not finite.
  Status SkipOrFail(const wire::StepMessage& agreed);
  // True if the step under way ends with a checkpoint; SavesState: or with a copy.
  bool WritesCheckpoint() const;
  bool SavesState() const;
  bool StopsNow() const { return stops_after_ == step_; }
  Status SaveState();
  // Keeps the boundary's token tables as the step under way leaves them, if they will be saved.
  // Called before tensors of the next step are sent.
  void KeepTablesOfStep();
  Status CheckTied(const StageSnapshot& snapshot);

  // --- Samples (executor_samples.cc).
  // Takes the samples that follow the step under way, if any do.
  Status TakeSamplesIfDue();
  // Runs the next round. `request`: the first stage's, else null.
  Status RunSampleRound(const SamplesRequested* request);
  // Runs one pass of round_, and tells the other stages the tokens.
  Status RunSamplePass();
  // Runs forward of a sampling pass; `input` has the activation.
  StatusOr<std::optional<BoundaryTensor>> SampleForward(Slice slice, Stage::Input input);
  Status Handle(SamplesRequested& asked);
  // `round`: null if there is a problem.
  void ReportSamples(const SamplesRequested& request, const SampleRound* round,
                     const std::string& problem);
  // True if samples follow the step under way, as far as is known when it begins.
  bool SamplesFollow() const;
  // Begins the next step's times now: what was done since the last step belongs to no step.
  void ForgetTimes();

  Status Validate();
  // Returns the mean loss of a validation's `microbatches`; last stage only.
  StatusOr<double> Evaluate(PassKind kind, uint32_t microbatches);
  struct PassUnderWay {
    Pass pass;
    schedule::StagePolicy policy;
    double loss_sum = 0;  // last stage only
  };
  // Begins a pass, and tells its policy which inputs have arrived early.
  PassUnderWay Begin(const Pass& pass, const schedule::PolicyOptions& options) const;
  Status RunPass();  // runs now_ to its end
  schedule::PolicyOptions TrainingPolicy() const;
  // Returns now_ or next_, whichever is `pass`; null: neither.
  PassUnderWay* UnderWay(const Pass& pass);
  // Runs one piece of work of now_ or next_. False: none could run.
  StatusOr<bool> RunWhatCan();
  Status RunWork(PassUnderWay* under_way, const schedule::Work& work);
  // Tells the port to the previous stage how many gradients may leave, if that has changed.
  void LetGradientsLeave();
  Status RunForward(PassUnderWay* under_way, Slice slice);
  Status RunBackward(const Pass& pass, Slice slice);
  // Reports a written checkpoint to the coordinator. If it could not be written, reports that it is
  // skipped; if it was the final one, the stage fails. On the checkpoint writer's thread.
  void CheckpointWritten(const CheckpointWriter::Job& job,
                         const StatusOr<std::vector<ShardFile>>& files);
  // Lets the ports delete what only a return to a step before this worker's oldest checkpoint of
  // the run would need of their codecs' state.
  void ForgetMessages();
  // Adds the bytes and times of the collectives between the stage's ranks since the last report.
  // Adds nothing if the stage has one rank.
  void AddCollectives(v1::StepReport* report);
  void AddExpertLoad(v1::StepReport* report) const;
  std::vector<EdgePort*> AllPorts() const;
  // `learning_rate`: 0 if no parameter was updated.
  void ReportStep(const wire::StepMessage& agreed, double learning_rate, bool skipped = false);

  // Handles an event: keeps a tensor in `inputs_` or `gradients_` and tells the policy of its pass;
  // keeps other events in their members.
  Status Handle(PipelineEvent& event);
  Status HandleAll(std::deque<PipelineEvent> events);
  // Waits for events and handles them. If steps overlap, may run work of the next step instead.
  // `why`: WAIT_INPUT or WAIT_GRADIENT.
  Status WaitForEvent(v1::Span::Kind why);
  Status WaitForEvent(v1::Span::Kind why, WorkAtHand::Wait wait);
  Status WaitForAnyEvent();
  // Returns the trace for a pass; null for a validation, which belongs to no step.
  TraceLog* TraceOf(const Pass& pass) const { return pass.trains() ? trace_.get() : nullptr; }

  ExecutorOptions options_;
  ResidentStage& resident_;
  BoundaryPort *up_ = nullptr, *down_ = nullptr;  // elements of options_.ports
  std::unique_ptr<TiedExchange> tied_;            // or null
  std::shared_ptr<EventQueue> events_;
  const std::shared_ptr<TraceLog> trace_;
  const std::shared_ptr<WorkAtHand> work_;
  // Step of the final checkpoint. It must not be skipped, because no other follows. 0: not known
  // yet.
  std::atomic<uint64_t> last_checkpoint_{0};
  std::unique_ptr<CheckpointWriter> checkpoint_writer_;

  Step step_{0};  // the current step, or the last one that is done
  // The current pass, of a step or of a validation; and, if steps overlap, the pass of the next
  // step.
  std::optional<PassUnderWay> now_, next_;
  std::map<std::pair<Pass, Slice>, BoundaryTensor> inputs_, gradients_;
  std::optional<uint32_t> gradients_let_;  // number last told by LetGradientsLeave in this pass
  std::optional<RetuneRequested> retune_;  // waits for a step to begin
  // id of the last applied retune, and the first step with it
  std::optional<std::pair<uint64_t, Step>> retuned_;
  std::optional<NormArrived> norm_;
  std::optional<StepControlArrived> control_;
  // Messages of other replicas, by step and replica: for the current step, and for the next one in
  // which replicas agree.
  std::map<std::pair<Step, uint32_t>, wire::StepMessage> of_replicas_;
  bool stop_requested_ = false;
  std::optional<Step> stops_after_;  // the run's stop is agreed: its last step
  // The step after which rounds that were asked for follow, and their number.
  std::optional<std::pair<Step, uint32_t>> samples_asked_;
  std::deque<SamplesRequested> sample_requests_;  // first stage of replica 0
  std::deque<SampleRoundArrived> rounds_arrived_;
  std::optional<SampledTokensArrived> sampled_;
  std::unique_ptr<SampleRound> round_;  // under way; or null
  uint32_t sample_passes_ = 0;          // so far after this step
  std::optional<Step> tables_kept_;     // the last step of KeepTablesOfStep
  // A neighbour that has finished and left. It is an error only if this stage still waits.
  std::optional<PeerGone> gone_;
  std::optional<EdgeId> lost_edge_;

  // Digests of the state before the update of the step under way, and after the last update.
  std::optional<uint64_t> state_before_, state_after_;
  std::set<std::tuple<uint64_t, EdgeId, Direction>> doubted_;  // reported
  bool awaits_verdict_ = false;

  uint32_t skipped_in_a_row_ = 0;  // consecutive steps skipped until now
  double loss_sum_ = 0;
  double own_squared_norm_ = 0;
  StepTimes times_;
  absl::Duration codec_busy_before_;  // before the current step
  CollectiveUse collectives_before_;
  uint32_t peak_in_flight_ = 0;
  MonoTime step_began_;
  absl::Duration norm_wait_, norm_turn_;  // values of v1::StepReport
  MonoTime mark_;                         // the step's time is accounted for until here
};

}  // namespace longhaul::worker
