// What must hold of everything that the coordinator stores and does, judged from outside: against
// the store's contents as they were at that moment, and against what really happened.
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
  explicit Checkers(World* world) : world_(world), recovery_(world) {}

  // What a process of the coordinator gets.
  void Joined(SessionId session, const v1::Hello& hello);
  void Asked(RequestId request) { open_.insert(request); }
  void Sees(const Event& event);
  void Restarted();  // sessions and waiting requests died with the process

  // What the coordinator does: a transaction; then the commands that go with it, one by one.
  void Stored(const std::vector<Write>& writes);
  void Executes(const Command& command);

  // What a user was told; whatever happens, it stays so.
  void ToldAccepted(const v1::SubmitReply& reply);

  // At the end, when all faults are over: the record of a run is whole.
  void CheckRecords();

  const std::map<RunId, RunRecord>& records() const { return records_; }
  const std::vector<v1::Event>& events() const { return events_; }
  // That all stages of some epoch have finished.
  uint64_t best_step(const RunId& run) const { return recovery_.best_step(run); }
  bool stop_is_owed(const RunId& run, Epoch epoch) const {
    return stops_told_.contains({run.value(), epoch.value()});
  }

 private:
  void CheckRun(const RunRecord& record);
  void CheckGarbage(const command::CollectGarbage& garbage);
  void CheckMove(const RunRecord& before, const RunRecord& record);
  // Where all that happens is harmless, or curable.
  void CheckMayFail(const RunRecord& before, const RunRecord& record);
  void CheckEnd(const RunRecord& record);
  void CheckBlame(const RunRecord& record);
  void CheckCheckpoints(const RunRecord* before, const RunRecord& record);
  void CheckStep(const write::StepDone& done);
  void CheckSamples(const write::StepDone& done);
  void CheckReadSoFar(const RunRecord& record, const Assignment& assignment);
  // Microbatches up to the end of this step.
  uint64_t ReadBy(const RunId& run, const v1::StepRecord& step) const;
  void CheckStages();
  void CheckWorkerCommand(const command::ToWorker& to);
  void CheckWelcome(const std::string& incarnation);
  void CheckAbort(const v1::WorkerCommand& command, const std::string& incarnation);
  void CheckReply(const command::Reply<v1::StopReply>& stop);
  void Answered(RequestId request);
  bool IsResumeAsked(const std::string& name) const;

  World* const world_;
  RecoveryChecker recovery_;
  // Facts of the process at hand.
  std::map<SessionId, std::string> live_;                     // -> incarnation
  std::map<std::string, std::string> id_of_;                  // incarnation -> worker id
  std::map<std::string, std::vector<std::string>> welcomed_;  // worker id -> incarnations
  std::set<RequestId> open_;
  std::map<RequestId, std::string> stops_;  // those that are not --now

  // The store.
  std::map<RunId, RunRecord> records_;
  std::map<RunId, std::map<uint64_t, v1::StepRecord>> steps_;
  std::vector<v1::Event> events_;
  // Facts of all time.
  std::set<std::pair<std::string, uint64_t>> stops_told_;
  std::set<std::tuple<std::string, uint64_t, uint64_t>> commits_;  // run, epoch, step
  std::map<RequestId, std::string> resumes_;                       // not answered yet -> name
  // Runs that began another epoch in the newest tick, by a user's resume or by themselves, and the
  // epoch that they left.
  std::map<RunId, Epoch> moved_on_;
  std::set<RunId> resumed_;             // by a user, ever
  std::map<RunId, MonoTime> begun_at_;  // of the newest epoch
};

}  // namespace longhaul::coordinator::sim
