// Carries out the coordinator's commands on a worker, one at a time, on a thread of its own.
//
// An attempt at a run is called an "epoch". When an attempt has ended, its model stays in memory
// for a while ("resident"), so that the next attempt at the same run can use it (resident_stage.h).
//
// Handle, FillHello, FillHeartbeat and Reading are thread-safe and do not wait for a command in
// progress. Handle itself deletes the files of a dropped checkpoint, which may take a while. A
// repeated command does no harm. Which work a command is about, desk.h decides: Start, Stop and
// Retune do nothing if they name another assignment than the current one. Readdress and Abort also
// act on queued work of the assignment that they name, and Abort on its link probe.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "longhaul/v1/worker.pb.h"
#include "run/plan/plan.h"
#include "worker/agent/desk.h"
#include "worker/audit/audit_run.h"
#include "worker/epoch/epoch_run.h"
#include "worker/epoch/resources.h"
#include "worker/measuring/link_probe.h"
#include "worker/measuring/reach_check.h"

namespace longhaul::worker {

class Agent {
 public:
  // Copies `resources`; the objects that they point to must outlive the agent. Starts the thread.
  explicit Agent(const Resources& resources);
  ~Agent();  // calls Shutdown

  // Cancels the current run, and waits until the thread has ended; commands that come later start
  // no work. Idempotent.
  void Shutdown();

  // Carries out a command, or queues it for the thread.
  void Handle(v1::WorkerCommand command);
  // Fills in the model that is kept in memory, and the current run, epoch and cell (a stage of one
  // replica), as far as there are any.
  void FillHello(v1::Hello* hello) const;
  // Fills in the kept model, and what the current stage is working on.
  void FillHeartbeat(v1::Heartbeat* heartbeat) const;
  // Returns metrics of the current stage; nullopt: there is no current stage.
  std::optional<StageReading> Reading() const;
  // Returns the current run, epoch and assignment, for log lines. nullopt: there is no current run.
  std::optional<Topic> CurrentRun() const;

 private:
  void Loop();
  // False: this version does not know the command.
  bool HandleHere(v1::WorkerCommand command);
  void HandleWork(v1::WorkerCommand command);
  void SendTrace(const v1::WorkerCommand& command);
  void KeepEvidence(const v1::WorkerCommand& command);
  void Measure(const v1::WorkerCommand& command);
  void Probe(const std::shared_ptr<LinkProbe>& probe);
  StatusOr<v1::LayerTimes> TimesOf(const v1::WorkerCommand& command);
  // Called on the agent's thread; the caller holds mutex_. DropResident releases it for a while.
  void KeepResident(std::unique_ptr<ResidentStage> resident);
  void DropResident(std::unique_lock<std::mutex>& lock, const std::string& why);
  // Returns what is at hand. The caller holds mutex_.
  Desk DeskNow() const;

  const Resources resources_;
  ReachChecks reach_checks_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<v1::WorkerCommand> next_;     // next work: a Measure, ProbeLink, Audit or Assign
  std::vector<v1::Readdress> next_moves_;     // received after next_
  std::optional<v1::WorkerCommand> measure_;  // in progress
  std::shared_ptr<LinkProbe> probe_;          // in progress, or the last one
  std::optional<v1::WorkerMessage> probed_;   // answer of probe_, once there is one
  std::shared_ptr<AuditRun> audit_;           // in progress
  std::shared_ptr<EpochRun> run_;             // in progress
  bool run_leaves_ = false;                   // run_ was told to end
  v1::Resident resident_said_;                // what Hello tells of resident_; no run_id: nothing
  // The trace of the last stage here, kept until the next stage begins.
  struct Traced {
    Topic topic;
    CellId cell;
    std::shared_ptr<TraceLog> log;
  };
  Traced traced_;
  bool closing_ = false;
  // The model of the last attempt, while no attempt is in progress. Used on the agent's thread
  // only.
  std::unique_ptr<ResidentStage> resident_;
  MonoTime resident_until_;
  std::thread thread_;
};

}  // namespace longhaul::worker
