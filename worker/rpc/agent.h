// What a worker does on its coordinator's commands: one thing at a time, on a thread of its own.
//
// When an epoch has ended, its model stays for the next one of the same run (resident_stage.h).
//
// Handle, FillHello, FillHeartbeat and Reading are thread-safe and never wait for the work at hand;
// Handle deletes the files of a checkpoint that is to be dropped itself. Commands are idempotent;
// one for another run or epoch than the one at hand does nothing.
#ifndef LONGHAUL_WORKER_RPC_AGENT_H_
#define LONGHAUL_WORKER_RPC_AGENT_H_

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
#include "worker/rpc/epoch_run.h"
#include "worker/rpc/link_probe.h"
#include "worker/rpc/reach_check.h"
#include "worker/rpc/resources.h"

namespace longhaul::worker {

class Agent {
 public:
  explicit Agent(const Resources& resources);
  ~Agent();

  // Drops the run at hand and ends the thread; commands that still come do nothing. Idempotent.
  void Shutdown();

  void Handle(v1::WorkerCommand command);
  // Run, epoch and cell at hand, if any, and the model that is kept.
  void FillHello(v1::Hello* hello) const;
  void FillHeartbeat(v1::Heartbeat* heartbeat) const;
  // The stage at hand, for metrics; nullopt: there is none.
  std::optional<StageReading> Reading() const;
  // The run at hand, for log lines.
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
  // With mutex_ held, on the thread.
  void KeepResident(std::unique_ptr<ResidentStage> resident);
  void DropResident(std::unique_lock<std::mutex>& lock, const std::string& why);
  // With mutex_ held: whether it speaks of run_, of next_.
  bool IsCurrent(const v1::WorkerCommand& command) const;
  bool IsNext(const v1::WorkerCommand& command) const;
  bool IsBeingMeasured(const v1::WorkerCommand& command) const;

  const Resources resources_;
  ReachChecks reach_checks_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<v1::WorkerCommand> next_;     // a Measure, a ProbeLink or an Assign
  std::vector<v1::Readdress> next_moves_;     // that came behind it
  std::optional<v1::WorkerCommand> measure_;  // at hand
  std::shared_ptr<LinkProbe> probe_;          // at hand, or the last
  std::optional<v1::WorkerMessage> probed_;   // its answer, once there is one
  std::shared_ptr<EpochRun> run_;             // at hand
  v1::Resident resident_said_;                // what is said of resident_; no run_id: there is none
  // What the last stage that ran here did, kept until the next one begins.
  struct Traced {
    RunId run;
    Epoch epoch;
    CellId cell;
    std::shared_ptr<TraceLog> log;
  };
  Traced traced_;
  bool closing_ = false;
  // Of the last epoch, where none is at hand. The thread's own.
  std::unique_ptr<ResidentStage> resident_;
  MonoTime resident_until_;
  std::thread thread_;
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_RPC_AGENT_H_
