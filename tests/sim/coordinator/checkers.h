// Checks everything that the coordinator stores, commands and answers. Compares it with the store's
// contents at that moment, and with the truth (world.h), which the coordinator does not see. A
// failed check is reported by World::Violate, which ends the simulation. Threads: one.
//
// Words: an epoch is one attempt to train a run. An incarnation is one process of a worker.
#pragma once

#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "coordinator/state/state.h"
#include "tests/sim/coordinator/recovery_checker.h"
#include "tests/sim/coordinator/world.h"

namespace longhaul::coordinator::sim {

class Checkers {
 public:
  // `world` must outlive this object.
  explicit Checkers(World* world) : world_(world), recovery_(world) {}

  // The simulation reports the coordinator's input: a worker's new session, a user's call, an event
  // of the next tick, and the end of the coordinator's process with its sessions and calls.
  void Joined(SessionId session, const v1::Hello& hello);
  void Asked(RequestId request) { open_.insert(request); }
  void Sees(const Event& event);
  void Restarted();

  // The simulation reports the coordinator's output: a stored transaction, then each of its
  // commands just before the command is carried out.
  void Stored(const std::vector<Write>& writes);
  void Executes(const Command& command);

  // A user was told that a submission is accepted. Checks that the store has the run.
  void ToldAccepted(const v1::SubmitReply& reply);

  // Checks that the store has all steps of each run, and the last checkpoint of each finished run.
  // Call it at the end, after all faults.
  void CheckRecords();

  const std::map<RunId, RunRecord>& records() const { return records_; }
  const std::vector<v1::Event>& events() const { return events_; }
  // Returns the newest step that all stages have finished in any epoch of the run; 0: none.
  uint64_t best_step(const RunId& run) const { return recovery_.best_step(run); }
  // True if a user was told that this epoch of the run will stop.
  bool stop_is_owed(const RunId& run, Epoch epoch) const {
    return stops_told_.contains({run.value(), epoch.value()});
  }

 private:
  void CheckRun(const RunRecord& record);
  void CheckGarbage(const command::CollectGarbage& garbage);
  void CheckMove(const RunRecord& before, const RunRecord& record);
  // Checks that a run does not fail in a simulation whose faults must not end runs
  // (Faults::sessions_alone, Faults::curable_alone).
  void CheckMayFail(const RunRecord& before, const RunRecord& record);
  void CheckEnd(const RunRecord& record);
  // Checks that the reason of a failed run names a worker that had a fault, or another true cause.
  void CheckBlame(const RunRecord& record);
  void CheckCheckpoints(const RunRecord* before, const RunRecord& record);
  void CheckStep(const write::StepDone& done);
  // Both check that each step begins with the microbatch after the last one of the step before.
  void CheckSamples(const write::StepDone& done);
  void CheckReadSoFar(const RunRecord& record, const Assignment& assignment);
  // Returns the number of microbatches that the run has read up to the end of this step.
  uint64_t ReadBy(const RunId& run, const v1::StepRecord& step) const;
  // Checks that no incarnation has stages of two runs, or two stages.
  void CheckStages();
  void CheckWorkerCommand(const command::ToWorker& to);
  void CheckWelcome(const std::string& incarnation);
  void CheckAbort(const v1::WorkerCommand& command, const std::string& incarnation);
  void CheckReply(const command::Reply<v1::StopReply>& stop);
  // Checks that a run has one hook at a time, and that the coordinator was sent what the hook gets.
  void CheckHook(const command::RunHook& hook);
  // Checks that no checkpoint is deleted in the object store that the store offers there.
  void CheckTrim(const command::TrimFolder& trim);
  // Checks that a shard is where its holder says, or that a fault has changed it.
  void CheckHolder(const std::string& id, const v1::CheckpointManifest& manifest,
                   const v1::CheckpointFile& file, const v1::ShardHolder& holder);
  void Answered(RequestId request);
  bool IsResumeAsked(const std::string& name) const;

  World* const world_;
  RecoveryChecker recovery_;
  // Facts about the coordinator's present process.
  std::map<SessionId, std::string> live_;                     // session -> incarnation
  std::map<std::string, std::string> id_of_;                  // incarnation -> worker id
  std::map<std::string, std::vector<std::string>> welcomed_;  // worker id -> incarnations
  std::set<RequestId> open_;                                  // calls without an answer
  std::set<RunId> hooks_;                                     // runs whose hook is under way
  std::map<RequestId, std::string> stops_;  // stop calls without --now -> run's id or name

  // The contents of the store.
  std::map<RunId, RunRecord> records_;
  std::map<RunId, std::map<uint64_t, v1::StepRecord>> steps_;
  std::vector<v1::Event> events_;
  // Facts about the whole simulation.
  std::set<std::pair<std::string, uint64_t>> stops_told_;          // run, epoch: will stop
  std::set<std::tuple<std::string, uint64_t, uint64_t>> commits_;  // checkpoints: run, epoch, step
  std::map<RequestId, std::string> resumes_;  // resume calls without an answer -> run's name
  // Runs that began another epoch in the newest tick -> the epoch that they left. A user's resume
  // or the coordinator's own recovery began the epoch.
  std::map<RunId, Epoch> moved_on_;
  std::set<RunId> resumed_;             // runs that a user has ever resumed
  std::map<RunId, MonoTime> begun_at_;  // when the run's newest epoch began
};

}  // namespace longhaul::coordinator::sim
