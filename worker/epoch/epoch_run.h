// Carries out one assignment, from Assign to the end of this cell's attempt ("epoch"). The
// ResidentStage outlives the attempt; the next attempt may reuse it.
//
// Run() and TakeResident on the agent's thread; Start, Stop, Checkpoint, Retune, Readdress and
// Cancel on any thread.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/cuda/device.h"
#include "base/device_name.h"
#include "base/status.h"
#include "longhaul/v1/worker.pb.h"
#include "run/file/run_spec.h"
#include "run/plan/plan.h"
#include "run/tokens/token_file.h"
#include "worker/epoch/beside.h"
#include "worker/epoch/chunk_peers.h"
#include "worker/epoch/epoch_inputs.h"
#include "worker/epoch/epoch_ports.h"
#include "worker/epoch/resources.h"
#include "worker/pipeline/executor.h"
#include "worker/pipeline/resident_stage.h"

namespace longhaul::worker {

class EpochRun {
 public:
  // `resident`: the stage that this worker has in memory, of any run; or null.
  EpochRun(const Resources& resources, const v1::Assign& assign,
           std::unique_ptr<ResidentStage> resident);
  ~EpochRun();

  // Prepares, reports StageReady, waits for Start and trains. Then keeps the links open until
  // Cancel, because neighbours may still need them. Errors have been reported when it returns.
  void Run();
  // Call it after Run: returns the stage that the next attempt can reuse, or null.
  std::unique_ptr<ResidentStage> TakeResident();

  void Start();
  void RequestStop();
  void RequestRetune(const v1::Retune& retune);
  void Readdress(const v1::Readdress& moved);
  // `finished`: every stage has finished its part.
  void Cancel(std::string reason, bool finished = false);
  // Reports StageReady if the stage is ready; called again when the coordinator asks.
  void SayReady();
  // Fills in the stage's current work; nothing before the stage trains. Any thread.
  void FillAtHand(v1::Heartbeat* heartbeat) const;
  // For metrics. Any thread.
  StageReading Reading() const;

  const RunId& run() const { return assignment_.run; }
  Epoch epoch() const { return assignment_.epoch; }
  const CellId& cell() const { return cell_; }
  const std::shared_ptr<TraceLog>& trace() const { return trace_; }

 private:
  Status Prepare();
  // `text`: null in stages that read none. `begun_from`: the checkpoint that the stage was restored
  // from, or null.
  Status MakeExecutor(std::shared_ptr<WindowSource> text, const StageSnapshot* begun_from);
  // Null if the stage has no replicas.
  StatusOr<std::unique_ptr<ReplicaExchange>> MakeExchange(const StageSnapshot* begun_from);
  uint64_t Numerics() const;              // value of v1::StepReport::numerics
  std::vector<DeviceName> Ranks() const;  // value of StageOptions::ranks
  // Checks this cell's part of the assignment, and that this worker can carry it out.
  Status Check();
  void DropResidentUnlessFit(const ResidentIdentity& wanted, const ParametersOrigin& origin);
  void ReportForgotten();
  // Connects to workers that read the same data sets. They exchange chunks while the stage trains.
  void MeetReaders();
  void LeaveReaders();
  Status WaitForStart();
  void Report(v1::WorkerMessage message);
  void ReportError(const Status& status);
  // Trains until the last step, under a watchdog.
  Status Train();
  // Tells the coordinator that this process cannot go on, and ends the process; another one
  // follows.
  void GiveUp(v1::WorkerFault fault, const std::string& message);
  void SayMemory();
  bool Cancelled() const;
  bool AllFinished() const;

  const Resources& resources_;
  const Assignment assignment_;
  const CellId cell_;
  const std::string link_secret_;
  // The files of the checkpoint that the attempt begins from: the cell's parameters, and the token
  // tables of its boundaries.
  std::vector<v1::CheckpointFile> resume_files_, table_files_;
  const EpochInputs inputs_;
  RunSpec spec_;
  std::shared_ptr<const data::Mixture> mixture_;  // null: a token file
  std::optional<cuda::Device> gpu_;
  std::unique_ptr<ResidentStage> resident_;
  const std::shared_ptr<EventQueue> events_ = std::make_shared<EventQueue>();
  const std::shared_ptr<TraceLog> trace_ = std::make_shared<TraceLog>();
  const std::shared_ptr<WorkAtHand> work_ = std::make_shared<WorkAtHand>();
  EpochPorts ports_;
  std::unique_ptr<Executor> executor_;
  std::shared_ptr<SetChunks> chunks_;  // null: the stage reads no data sets
  bool gives_model_up_ = false;        // no later attempt may reuse the model

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<ChunkPeers> readers_;  // null: not connected yet
  std::optional<uint64_t> ready_with_;   // number of parameters
  bool started_ = false;
  std::optional<std::string> cancelled_;
  bool all_finished_ = false;
};

}  // namespace longhaul::worker
