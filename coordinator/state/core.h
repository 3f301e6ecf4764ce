// The state machine itself. One class, one file per concern:
//
//   core.cc        the tick, timers, moves along the table, what goes out
//   sessions.cc    workers come, speak, go, and come back
//   queue.cc       submitted runs wait for workers; `longhaul plan`
//   planning.cc    measure, plan, assign
//   computing.cc   what is computed beside the tick: asked for, given up, answered
//   reach.cc       workers try each other's addresses
//   probes.cc      neighbours measure their links before they are planned for
//   detached.cc    stages whose workers have no session
//   recovery.cc    a run goes on by itself after a loss
//   crew.cc        who has the cells of the next epoch
//   replicas.cc    replicas come and go between steps
//   life.cc        ready, finished, stop, failure
//   reports.cc     steps, validation, checkpoints, links, logs
//   repeats.cc     steps that are trained again must give the same numbers
//   skipped.cc     checkpoints that a stage could not write
//   progress.cc    a run that stands still
//   health.cc      workers that are lost again and again, or end by themselves
//   checkpoints.cc shards are hashed, copied, moved and dropped
//   checkpoint_list.cc what is known of them
//   copies.cc      copies of them at other workers
//   spares.cc      workers that a run reserves beside those of its stages
//   retune.cc      depths and order follow what is measured
//   traces.cc      what every stage did when
//   garbage.cc     runs that are removed; what no run needs any more
//   render.cc      what people see
//   invariants.cc  what always holds
//
// books/ has what stands alone: who reaches whom, how fast links are, which shards were hashed,
// what stages did when. They say what to ask and what to say; the class sends and logs it.
//
// Private to coordinator/state; state.h is the public face.
#ifndef LONGHAUL_COORDINATOR_STATE_CORE_H_
#define LONGHAUL_COORDINATOR_STATE_CORE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "coordinator/planner/planner.h"
#include "coordinator/state/books/health_book.h"
#include "coordinator/state/books/link_book.h"
#include "coordinator/state/books/reach_book.h"
#include "coordinator/state/books/shard_book.h"
#include "coordinator/state/books/trace_book.h"
#include "coordinator/state/link_stall.h"
#include "coordinator/state/model.h"
#include "coordinator/state/state.h"
#include "coordinator/state/transitions.h"

namespace longhaul::coordinator {

// A worker's answer to a question with a limit may take longer than that by this.
inline constexpr absl::Duration kAnswerPatience = absl::Seconds(5);

class Core {
 public:
  Core(const StateOptions& options, StoredRuns stored, uint64_t next_event_sequence, MonoTime now);

  TickResult Tick(std::vector<Event> events, MonoTime now, int64_t unix_ms);

  // render.cc
  std::vector<v1::RunStatus> Runs(int64_t ended_since_unix_ms) const;
  StatusOr<v1::RunStatus> RunOf(std::string_view id_or_name) const;
  std::vector<v1::WorkerStatus> Workers(MonoTime now) const;
  // probes.cc
  std::vector<v1::MeasuredLink> Links(MonoTime now) const;
  const FaultCounts& faults() const { return faults_; }
  // relays.cc
  std::vector<v1::RelayStatus> Relays() const;
  uint64_t sequence() const { return sequence_; }
  // checkpoints.cc
  bool HasCopyFor(const WorkerId& from, const std::string& sha256) const;
  // rights.cc
  Naming NamedForWorker(const WorkerId& worker, const std::string& sha256) const;
  Naming NamedForOwner(std::string_view owner, const std::string& sha256) const;
  OwnNames NamesOfOwner(std::string_view owner) const;
  bool HoldsCell(const Worker& worker, const Run& run) const;
  bool ExpectsCopy(const std::string& sha256, uint64_t bytes,
                   const std::optional<WorkerId>& from) const {
    return shards_.ExpectsCopy(sha256, bytes, from);
  }

 private:
  // core.cc: the tick.
  MonoTime AwakeAt(MonoTime now);
  void Recover();
  void CheckTimers();
  absl::Duration SessionTimeoutOf(const Worker& worker) const;
  std::optional<MonoTime> NextWake() const;
  // The only place where a run's state changes. CHECKs that the table has the row and does its
  // action. `reason` is what `status` says from now on, `text` what the event adds to it.
  void Move(Run& run, Trigger trigger, const std::string& reason = "",
            const std::string& text = "");
  void Act(Run& run, Action action, const std::string& reason);
  void Release(Run& run);

  // core.cc: what goes out.
  void Changed(Run& run);  // visible, not stored
  void Store(Run& run);    // visible and stored
  void Log(const Run* run, std::string_view kind, std::string text);
  v1::WorkerCommand CommandFor(const RunId& run, Epoch epoch) const;
  void Send(const Worker& worker, v1::WorkerCommand command);
  void SendAbort(const Worker& worker, const RunId& run, Epoch epoch, const std::string& reason,
                 bool finished = false);

  // core.cc: looking things up.
  Worker* FindWorker(const WorkerId& id);
  const Worker* FindWorker(const WorkerId& id) const;
  Worker* WorkerOf(SessionId session);
  Run* FindRun(const RunId& id);
  // By id, else the newest run of that name.
  const Run* FindRunByText(std::string_view id_or_name) const;
  std::vector<Run*> RunsInOrder();  // oldest first
  StageRecord* StageOf(Run& run, const Worker& worker);
  // The worker that is this very incarnation and connected.
  Worker* LiveWorkerOf(const WorkerId& id, const Incarnation& incarnation);
  // "b", or "b (1f3c9a20)" where two connected workers are called so.
  std::string Label(const Worker& worker) const;
  std::string Label(const StageRecord& stage) const;  // "worker b (stage 1)"

  // sessions.cc
  void On(event::WorkerJoined& joined);
  void On(event::WorkerSaid& said);
  void On(event::WorkerLeft& left);
  std::optional<std::string> RefusalOf(const v1::Hello& hello) const;
  void NoteClock(Worker& worker, bool is_new);
  void RefuseTwin(const Worker& worker, const event::WorkerJoined& joined);
  void Refuse(SessionId session, const std::string& refusal);
  // Its session has ended. `for_good`: and its process.
  void Lose(Worker& worker, const std::string& why, bool for_good = false);
  void Attach(Worker& worker);
  void AttachToDraft(Worker& worker, Draft& draft);
  void AttachToStage(Worker& worker, Run& run, StageRecord& stage);
  // The plan has the stage's addresses as its worker says them now, and who dials them hears of it.
  void NoteAddresses(const Worker& worker, Run& run, const StageRecord& stage);
  // To who dials over this edge: where the other end is reached.
  void SendReaddress(const Run& run, const Edge& edge);
  void OnRunMessage(Worker& worker, const v1::WorkerMessage& message);
  void OnStageMessage(Worker& worker, Run& run, const v1::WorkerMessage& message);
  void DropMessage(Run& run, const Worker& worker, const v1::WorkerMessage& message,
                   std::string_view why);
  void ForgetOldWorkers();

  // detached.cc
  void Detach(Run& run, StageRecord& stage, const std::string& why);
  void Reattach(Run& run, StageRecord& stage);
  // After the coordinator's restart: nobody of the run has come back yet.
  void DetachAll(Run& run);
  // From when on a detached stage counts as dead; nullopt: nothing shows that.
  std::optional<MonoTime> DeadAt(const Run& run, const StageRecord& stage) const;
  // Whether one of them is lost by now, for which the run was interrupted.
  bool CheckDetached(Run& run);
  MonoTime DetachedWake(const Run& run) const;

  // recovery.cc
  // The epoch cannot go on; the run can, unless that was tried too often. `cause` is a sentence
  // without its full stop, by value because run.suspicion, which is forgotten, may hold it.
  // `is_error`: a stage's own, which may come again.
  void Interrupt(Run& run, std::string cause, bool is_error = false);
  // Attempts in a row end with a step that no epoch had finished before.
  void NoteProgress(Run& run);
  // False: too often, and the run has failed.
  bool CountAttempt(Run& run, const std::string& cause, const std::string& error);
  // The same for a plan in the making: the run goes back to the queue; a request to plan is
  // refused.
  void InterruptDraft(const RunId& id, const std::string& cause);
  void ForgetEpoch(Run& run);
  void AdvanceRecoveries();
  void AdvanceRecovery(Run& run);
  void NoteWhoIsThere(Run& run);
  std::vector<std::string> Away(const Run& run) const;
  std::string WhomItWaitsFor(const Run& run) const;
  std::string ChangesTo(const Run& run, const Assignment& next) const;
  // The newest whole checkpoint of which somebody who is connected holds each file.
  const v1::CheckpointManifest* NewestWithinReach(const RunRecord& record) const;
  void BeginNextEpoch(Run& run, const Crew& crew, Plan plan, uint64_t step);
  absl::Duration PatienceFor(const Run& run, const v1::CheckpointManifest* newest,
                             const v1::CheckpointManifest* within_reach, bool at_once) const;
  void Wait(Run& run, const std::string& sentence);
  void PlanAnew(Run& run, const std::string& why);

  // crew.cc
  // With as many replicas as are wanted or, where that cannot be, as can be whole; at least
  // LeastReplicas, of which places may be empty. Reserves the run's own workers that are free.
  Crew CrewOf(Run& run);
  uint32_t LeastReplicas(const Run& run) const;
  static void DropLeastWhole(uint32_t stages, Crew* crew);
  // Empties places whose worker lacks the memory, and fills empty ones as far as it can.
  void Fill(const Run& run, Crew* crew);
  Worker* ReplacementFor(const Run& run, const CellId& id, const Crew& crew);
  bool HasMemory(const Run& run, const CellId& id, const Worker& worker, const Crew& crew) const;
  bool CanTake(const Run& run, const CellId& id, const Worker& worker, const Crew& crew) const;
  // The plan of the next epoch, whose epoch and first step are not set yet. `crew` is whole.
  StatusOr<Plan> PlanWith(const Run& run, const Crew& crew) const;
  Assignment WithCrew(const Run& run, const Crew& crew) const;

  // replicas.cc
  void On(event::ReplicasAsked& asked);
  StatusOr<v1::ReplicasReply> SetReplicas(const event::ReplicasAsked& asked);
  // Runs that could train with another number of replicas stop for that.
  void AdvanceReplicas();
  bool AreWarm(const Run& run, const Crew& crew) const;
  void Resize(Run& run, uint64_t step);
  // Of those that are wanted.
  uint32_t ReplicasMissing(const Run& run) const;
  // "" where as many train as are wanted.
  std::string WhyFewerReplicas(const Run& run) const;
  void LogReplicas(const Run& run, uint32_t before, const std::string& away);

  // queue.cc
  void On(event::Submitted& submitted);
  void On(event::PlanAsked& asked);
  // As if it came now. Until `until` it waits for workers who try to reach each other.
  void Submit(event::Submitted submitted, MonoTime until);
  void SubmitHeld();
  StatusOr<Run*> NewRun(event::Submitted& submitted, bool may_wait);
  StatusOr<Run*> ResumeRun(event::Submitted& submitted, bool may_wait,
                           std::vector<std::string>* notes);
  void AdvanceQueue();
  void AnswerSubmits();
  // The workers, or the sentence that says what is missing. `resume_step`: of the
  // checkpoint that the run goes on from, 0 for none.
  // For as many of `*replicas` as there are workers; it is brought down to that.
  StatusOr<Candidates> WorkersForAsManyAs(const RunRecord& record, uint64_t step,
                                          uint32_t* replicas);
  StatusOr<Candidates> WorkersFor(const RunSpec& spec, const RunRecord& record,
                                  uint64_t resume_step);
  // Those that have a device for each rank of a stage come first. Where the count of stages is left
  // to us they are all, unless there is none: then the plan says what the others lack.
  std::vector<Worker*> FreeFor(const RunSpec& spec);
  bool HasDevicesFor(const RunSpec& spec, const Worker& worker) const;
  StatusOr<Candidates> ChooseWorkers(const RunSpec& spec);
  // Always in pipeline order: shards stay where they are.
  StatusOr<Candidates> WorkersForResume(const RunSpec& spec, const RunRecord& record,
                                        const v1::CheckpointManifest& manifest);
  std::string ShortageSentence(const RunSpec& spec) const;
  std::vector<const Worker*> ConnectedByName() const;

  // planning.cc
  void On(event::DataPrepared& prepared);
  Draft NewDraft(const RunId& id, Epoch epoch, const RunSpec& spec, std::vector<v1::DataFile> files,
                 std::string link_secret, const Candidates& candidates);
  // Gives train.dtype: auto the type that these workers' products are computed in. A run is settled
  // once and keeps it, whichever workers it has later.
  void SettleDtype(const std::vector<Worker*>& workers, RunSpec* spec) const;
  // Without what was measured.
  CandidateWorker CandidateOf(const RunSpec& spec, const Worker& worker) const;
  void BeginDraft(Draft& draft);
  // Of workers of a resumed run that have timed these very layers before.
  void ReuseLayerTimes(Draft& draft);
  void SendMeasure(const Worker& worker, const RunId& run, Epoch epoch, const RunSpec& spec);
  void NoteLayerTimes(const Run& run, const Draft& draft, const Worker& last);
  // Whether the workers that it would get now have the devices, and can talk over the transports
  // that it asks for, as far as that is known; OK where there are none yet. kUnavailable where it
  // `may_wait` and some of them are trying to reach each other.
  Status CheckLinks(const RunSpec& spec, const StatusOr<Candidates>& candidates,
                    bool may_wait) const;
  // Whether the first of them by name, or these in pipeline order, can talk to their neighbours.
  Status CheckNeighbours(const RunSpec& spec, const std::vector<Worker*>& workers) const;
  // A worker that a plan can do without is no candidate any more. False: it cannot do without.
  bool DropCandidate(Draft& draft, Worker& worker, const std::string& why);
  PlanRequest PlanRequestOf(const Draft& draft) const;
  bool Complete(const Draft& draft) const;
  void OnDraftMessage(Worker& worker, Draft& draft, const v1::WorkerMessage& message);
  void AdvanceDraft(const RunId& id);
  // The plan that there is, or that is being computed, is of something that is not so any more.
  void DropPlan(Draft& draft);
  // Those that wait for workers who try to reach each other.
  void AdvanceDraftsOnReach();
  void FailDraft(const RunId& id, const std::string& sentence);
  void EndJob(const RunId& id, StatusOr<v1::PlanReply> reply);
  Draft* FindDraft(const RunId& id);
  void AdoptPlan(Run& run, Plan plan);
  // What the run file left to the plan is what that chose, from now on.
  void SettleReplicas(Run& run, uint32_t chosen);
  void SettleCodecs(Run& run, const Assignment& assignment);
  // Of a plan that is simpler than it might be.
  void NoteCutShort(const Run& run, const Plan& plan);
  void SendAssign(const Worker& worker, const Run& run, const StageRecord& stage);

  // computing.cc
  void Compute(Draft& draft);
  void Compute(Run& run, const Seen& seen);
  void Cancel(std::optional<ComputationId>& computation);
  void On(event::PlanComputed& computed);
  void On(event::RetuneComputed& computed);

  // probes.cc
  // Begins the measurement where that is not done. False while answers are awaited; AdvanceDraft
  // follows them.
  bool LinksAreMeasured(Draft& draft);
  void BeginProbes(Draft& draft);
  void SendProbe(const Worker& worker, const Draft& draft, const Probe& probe);
  void RepeatProbes(const Worker& worker, const Draft& draft);
  void OnLinkProbed(const Worker& worker, Draft& draft, const v1::LinkProbed& answer);
  // What was measured, or an event that it could not be.
  void NoteLink(Draft& draft, const Probe& probe);
  // Whether the plan uses links that are to be measured first, after which it is made again.
  bool SurveyGoesOn(Draft& draft);
  std::vector<CandidateWorker> CandidatesOf(const Draft& draft) const;
  void CheckProbes();
  void AddMeasuredLinks(const Draft& draft, CandidateWorker* worker) const;

  // relays.cc: who carries links now, the coordinator first, then connected workers.
  std::vector<Relay> RelaysNow() const;
  // nullopt: it carries none now.
  std::optional<RelayOffer> OfferOf(const Relay& relay) const;
  // It went through relays, and all of them are gone.
  bool HasLostItsRelays(const Edge& edge) const;
  // Where both ends of a link meet, of those relays that are there. Nobody can guess the name under
  // which they do who does not know the secret.
  std::vector<std::string> WaysThrough(const std::vector<Relay>& relays,
                                       std::string_view link_secret, std::string_view link) const;

  // reach.cc
  // A worker has come: the worker and others try what is not known yet.
  void CheckReach(const Worker& worker);
  // Asks both ends of each question and logs the sentences.
  void Carry(const ReachBook::News& news);
  void AddReach(CandidateWorker* worker) const;
  // Whether an answer is under way that says which of two neighbours dials, or that they are cut
  // off.
  bool IsTryingReach(const RunSpec& spec, const Worker& upper, const Worker& lower,
                     EdgeKind kind) const;
  bool IsTryingReach(const Draft& draft) const;
  // When the patience of a draft or a submission that begins to wait now ends. A worker that keeps
  // coming back does not prolong the wait.
  MonoTime ReachPatience() const;
  void RenderReach(const Worker& worker, MonoTime now, v1::WorkerStatus* status) const;

  // life.cc
  void On(event::StopAsked& asked);
  void OnReady(Run& run, StageRecord& stage, const v1::StageReady& ready);
  void BeginIfAllReady(Run& run);
  void OnFinished(Run& run, StageRecord& stage, const v1::StageFinished& finished);
  void OnError(Run& run, StageRecord& stage, const v1::RunError& error);
  void OnStageLost(Run& run, StageRecord& stage, const std::string& why);
  void SendStart(const Worker& worker, const Run& run);
  void SendStop(Run& run);
  // `cause` is a sentence without its full stop.
  void Fail(Run& run, const std::string& cause);
  std::string HowToResume(const Run& run) const;
  std::string NonFiniteSentence(const Run& run) const;
  void CheckRunTimers(Run& run);

  // reports.cc
  void OnStep(Run& run, StageRecord& stage, const Worker& worker, const v1::WorkerMessage& message);
  void FinishStep(Run& run, uint64_t step, const PartialStep& partial);
  void LogIfSkipped(Run& run, uint64_t step, const PartialStep& partial);
  void OnValidation(Run& run, const v1::ValidationReport& report);
  void OnShard(Run& run, StageRecord& stage, const Worker& worker,
               const v1::WorkerMessage& message);
  void CommitCheckpoint(Run& run, uint64_t step, const PartialCheckpoint& partial);
  void OnLink(Run& run, StageRecord& stage, const v1::LinkEvent& link);
  void OnLinkHealed(Run& run, const StageRecord& stage, const v1::LinkEvent& link,
                    const std::string& pair);

  // repeats.cc
  // Files a step that all stages have finished, and says how it compares where it was trained
  // before. False: it must have given the same numbers and did not, so the run has failed.
  bool FileStep(Run& run, v1::StepRecord* row, const PartialStep& partial);
  std::string BrokenPromise(const Run& run, const v1::StepRecord& row,
                            const RepeatedStep& repeated) const;
  // skipped.cc
  // True: this checkpoint is skipped, because of this report or an earlier one.
  bool SkipCheckpoint(Run& run, const StageRecord& stage, const v1::ShardReport& report);

  // progress.cc
  void NoteAtHand(Worker& worker, const v1::AtHand& at_hand);
  absl::Duration ProgressLimit(const Run& run) const;
  // Whether it explains why nothing moves, or says that something does.
  bool IsExcused(const Run& run) const;
  // Whether the run stood still for too long, for which it was interrupted.
  bool CheckProgress(Run& run);

  // health.cc
  // Connected, reserved by nobody or by `run` (may be null), and neither about to end nor left out.
  bool MayTake(const Worker& worker, const RunId* run = nullptr) const;
  // " (left out after 3 losses)", or "".
  std::string LeftOutText(const WorkerId& id) const;
  // This process was lost for a fault of the worker's own while it worked for `run` (may be null).
  void NoteFault(const Run* run, const WorkerId& id, const Incarnation& incarnation,
                 HealthBook::Fault fault);
  // Its process ends by itself.
  void OnRestart(Worker& worker, const v1::WorkerMessage& message);

  // retune.cc
  void BeginTuning(Run& run);
  void RecoverTuning(Run& run);
  void ConsiderRetune(Run& run, const PartialStep& partial);
  void RetuneFailed(Run& run, const Status& why);
  void AdoptRetune(Run& run, Plan better);
  void BeginChange(Run& run);
  void AdvanceChange(Run& run);
  void SendRetune(const Worker& worker, const Run& run, const StageRecord& stage);
  void OnRetuned(Run& run, const StageRecord& stage, const v1::Retuned& retuned);

  // checkpoint_list.cc
  void On(event::CheckpointsAsked& asked);
  void Gather(const Run& run, RequestId request, uint64_t step);
  // Unless it waits for checks.
  void AnswerVerified(const Run& run, RequestId request);
  v1::CheckpointsReply RenderCheckpoints(const Run& run, const VerifiedShards* verified) const;

  // traces.cc
  void On(event::TraceAsked& asked);
  void OnTrace(const Worker& worker, const v1::WorkerMessage& message);
  void EndTrace(uint64_t id, const Status& why);
  void CheckTraces();

  // checkpoints.cc
  void On(event::CopiesChecked& checked);
  void On(event::CopyStored& stored);
  void OnShardsChecked(Worker& worker, const v1::WorkerMessage& message);
  // A file that is whole, as far as is known, with nobody who is connected; nullptr: there is none.
  const v1::CheckpointFile* UnreachableFile(const v1::CheckpointManifest& manifest) const;
  bool IsConnected(const v1::ShardHolder& holder) const;
  void StartCheck(ShardCheck check);
  void SendCheck(const Worker& worker, uint64_t id, const ShardCheck& check);
  // Has everybody who can be asked hash what they have of this checkpoint.
  void CheckCheckpoint(const Run& run, const v1::CheckpointManifest& manifest,
                       ShardCheck::Purpose purpose, RequestId request);
  // Has those who hold `files` send copies to the coordinator.
  void AskForCopies(const Run& run, uint64_t step, const std::vector<v1::CheckpointFile>& files,
                    ShardCheck::Purpose purpose, RequestId request = RequestId(0));
  ConnectedWorkers Connected() const;
  // Where the run file asks for copies; `only_of_worker` "": of all.
  void KeepCopies(const Run& run, const v1::CheckpointManifest& manifest,
                  const std::string& only_of_worker);
  void NoteProblem(Run& run, uint64_t step, v1::CheckpointFile& file, const Worker& worker,
                   const std::string& problem);
  void AfterCheck(const ShardCheck& check, const std::string& failure);
  void GiveUpCheck(uint64_t id, const std::string& why);
  void LoseChecks(const Worker& worker, const std::string& why);
  void RepeatChecks(const Worker& worker);
  void CheckShardTimers();
  bool SettleOnCheckpoint(Run& run);
  bool ShardsAreInPlace(const Run& run, const Plan& plan);
  void BeginMoves(const Run& run, uint64_t step, const std::vector<ShardMove>& moves);
  void DropCheckpointsAfter(Run& run, uint64_t step);
  // `manifest` is one of the run's no more.
  void DropShards(const Run& run, const v1::CheckpointManifest& manifest);
  // Whether the coordinator holds this content for a checkpoint of any run.
  bool IsNamedCopy(const std::string& sha256) const;

  // copies.cc
  void AdvanceCopies();
  // Of the newest checkpoint, unless an older one is still being copied.
  void BeginCopies(Run& run);
  // How many connected workers have it.
  size_t HoldersWithinReach(const v1::CheckpointFile& file) const;
  // A connected worker that has it; null: there is none.
  Worker* SourceOf(const v1::CheckpointFile& file);
  // Who is to hold what `source`, which has a stage, knows; null: the coordinator.
  Worker* HolderFor(Run& run, const Worker& source);
  StatusOr<LinkEnds> PathBetween(const Run& run, const Worker& source, const Worker& holder,
                                 EdgeKind kind = EdgeKind::kState) const;
  double LineBetween(const Run& run, const Worker& source, const Worker& holder) const;
  void StartTransfer(const Run& run, uint64_t step, ShardCheck::Purpose purpose,
                     const WorkerId& source, const std::optional<WorkerId>& to,
                     std::vector<v1::CheckpointFile> files);
  void SendTransfer(uint64_t id, const ShardCheck& check, v1::WorkerCommand to_source);
  void AfterCopy(Run& run, const ShardCheck& check, const std::string& failure);
  void DropOutdated(Run& run);

  // spares.cc
  bool IsSpareOf(const Worker& worker, const Run& run) const;
  std::vector<Worker*> SparesOf(const Run& run);
  // As many as the run file asks for, and the workers of replicas that are missing.
  size_t SparesWanted(const Run& run) const;
  void ReleaseSparesBeyond(const Run& run, size_t wanted);
  void AdvanceSpares();
  void AskSparesForTimes(const Run& run);
  // A spare has timed the layers.
  void OnSpareTimes(Worker& worker, const Run& run, const v1::LayerTimes& times);

  // garbage.cc
  void On(event::RemoveAsked& asked);
  StatusOr<v1::RemoveRunReply> RemoveRun(const std::string& id_or_name);
  StatusOr<v1::RemoveRunReply> RemoveUnreadable(const RunId& id);
  // Nothing is left of the run in the store; connected workers delete their files of it.
  void Forget(const RunId& id, Epoch epoch);
  void On(event::GarbageAsked& asked);
  // Checkpoints that no resume takes.
  void TrimCheckpoints(Run& run, bool dry_run, v1::CollectGarbageReply* reply);
  void NameAll(command::CollectGarbage* collect) const;

  // render.cc
  v1::RunStatus Render(const Run& run) const;
  void RenderDraft(const Draft& draft, v1::RunStatus* status) const;
  void RenderStages(const Run& run, const std::vector<InterfaceUse>& interfaces,
                    v1::RunStatus* status) const;
  void RenderLinks(const Run& run, const std::vector<InterfaceUse>& interfaces,
                   v1::RunStatus* status) const;

  // invariants.cc
  void CheckInvariants() const;
  void CheckWorkers() const;
  void CheckRun(const Run& run) const;
  void CheckStages(const Run& run) const;
  void CheckTuning(const Run& run) const;

  struct PendingSubmit {
    RequestId request;
    RunId run;
    uint64_t resume_step = 0;
    std::vector<std::string> notes;
  };

  // Some of the workers that it would get are trying to reach each other.
  struct HeldSubmit {
    event::Submitted submitted;
    MonoTime until;
  };

  const StateOptions options_;
  std::map<WorkerId, Worker> workers_;
  std::map<SessionId, WorkerId> sessions_;
  // By name, as people count. Into workers_.
  struct NameLess {
    bool operator()(const Worker* a, const Worker* b) const;
  };
  std::set<const Worker*, NameLess> connected_;
  std::map<RunId, Run> runs_;      // erased by RemoveRun alone, which refuses one at work
  std::map<RunId, PlanJob> jobs_;  // by the id that the request brought
  std::vector<PendingSubmit> submits_;
  std::vector<HeldSubmit> held_submits_;  // in their order
  ReachBook reach_;
  LinkBook links_;
  uint64_t next_probe_ = 1;
  ShardBook shards_;
  TraceBook traces_;
  HealthBook health_;
  FaultCounts faults_;
  uint64_t next_retune_;
  uint64_t next_computation_ = 1;
  uint64_t next_order_ = 1;
  uint64_t next_event_;
  uint64_t sequence_;
  const MonoTime created_;
  std::vector<UnreadableRun> unreadable_;  // but for those that were removed
  // A process that was stopped for a while has heard nobody for no fault of theirs: its time limits
  // count the time that it was awake. On a clock that leaves out the rest: all times of the model.
  absl::Duration asleep_;
  MonoTime last_tick_;
  std::optional<MonoTime> wake_at_;  // what the last tick asked for
  bool was_late_ = false;
  bool recovered_ = false;

  // Of the tick under way.
  TickResult out_;
  MonoTime now_;  // awake
  int64_t unix_ms_ = 0;
};

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_STATE_CORE_H_
