// Carries out the coordinator's commands on a worker, one at a time, on a thread of its own.
//
// When an attempt at a run ("epoch") has ended, its model stays in memory for the next one of the
// same run (resident_stage.h).
//
// Handle, FillHello, FillHeartbeat and Reading are thread-safe and never wait for a command in
// progress; only the files of a dropped checkpoint are deleted inside Handle. Commands are
// idempotent. A command for another run or epoch than the current one does nothing.
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
#include "worker/epoch/epoch_run.h"
#include "worker/epoch/resources.h"
#include "worker/measuring/link_probe.h"
#include "worker/measuring/reach_check.h"

namespace longhaul::worker {

class Agent {
 public:
  explicit Agent(const Resources& resources);
  ~Agent();

  // Drops the current run and ends the thread; later commands do nothing. Idempotent.
  void Shutdown();

  void Handle(v1::WorkerCommand command);
  // Fills in the current run, epoch and cell, if any, and the resident model.
  void FillHello(v1::Hello* hello) const;
  void FillHeartbeat(v1::Heartbeat* heartbeat) const;
  // Metrics of the current stage; nullopt: there is none.
  std::optional<StageReading> Reading() const;
  // The current run, for log lines.
  bool CurrentRun(std::string* run_id, uint64_t* epoch) const;

 private:
  void Loop();
  // False: this version does not know the command.
  bool HandleHere(v1::WorkerCommand command);
  void HandleWork(v1::WorkerCommand command);
  void SendTrace(const v1::WorkerCommand& command);
  void Measure(const v1::WorkerCommand& command);
  void Probe(const std::shared_ptr<LinkProbe>& probe);
  StatusOr<v1::LayerTimes> TimesOf(const v1::WorkerCommand& command);
  // On the agent's thread; the caller holds mutex_.
  void KeepResident(std::unique_ptr<ResidentStage> resident);
  void DropResident(std::unique_lock<std::mutex>& lock, const std::string& why);
  // Whether the command is about run_ or next_. The caller holds mutex_.
  bool IsCurrent(const v1::WorkerCommand& command) const;
  bool IsNext(const v1::WorkerCommand& command) const;
  bool IsBeingMeasured(const v1::WorkerCommand& command) const;

  const Resources resources_;
  ReachChecks reach_checks_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<v1::WorkerCommand> next_;     // a Measure, a ProbeLink or an Assign
  std::vector<v1::Readdress> next_moves_;     // received after next_
  std::optional<v1::WorkerCommand> measure_;  // in progress
  std::shared_ptr<LinkProbe> probe_;          // in progress, or the last one
  std::optional<v1::WorkerMessage> probed_;   // answer of probe_, once there is one
  std::shared_ptr<EpochRun> run_;             // in progress
  v1::Resident resident_said_;                // Hello's text about resident_; no run_id: nothing
  // The trace of the last stage here, kept until the next stage begins.
  struct Traced {
    RunId run;
    Epoch epoch;
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
