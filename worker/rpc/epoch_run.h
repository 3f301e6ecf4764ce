// One assignment carried out: from Assign to the end of this cell's epoch. What outlives the epoch
// is the ResidentStage, which the next one may begin with.
//
// Run() and TakeResident on the agent's thread; Start, Stop, Checkpoint, Retune, Readdress and
// Cancel from any thread.
#ifndef LONGHAUL_WORKER_RPC_EPOCH_RUN_H_
#define LONGHAUL_WORKER_RPC_EPOCH_RUN_H_

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
#include "worker/pipeline/executor.h"
#include "worker/pipeline/resident_stage.h"
#include "worker/rpc/beside.h"
#include "worker/rpc/chunk_peers.h"
#include "worker/rpc/epoch_inputs.h"
#include "worker/rpc/epoch_ports.h"
#include "worker/rpc/resources.h"

namespace longhaul::worker {

class EpochRun {
 public:
  // `resident`: what this worker has in memory, of whatever run; or null.
  EpochRun(const Resources& resources, const v1::Assign& assign,
           std::unique_ptr<ResidentStage> resident);
  ~EpochRun();

  // Prepares, says StageReady, waits for Start, trains, and then keeps the links open until Cancel,
  // because neighbours may still need them. Errors were reported when it returns.
  void Run();
  // After Run: what the next epoch can go on with, or null.
  std::unique_ptr<ResidentStage> TakeResident();

  void Start();
  void RequestStop();
  void RequestCheckpoint();
  void RequestRetune(const v1::Retune& retune);
  void Readdress(const v1::Readdress& moved);
  // `finished`: every stage has finished its part.
  void Cancel(std::string reason, bool finished = false);
  // Says StageReady if that is so; also when the coordinator asks again.
  void SayReady();
  // What the stage is at; nothing before it trains. From any thread.
  void FillAtHand(v1::Heartbeat* heartbeat) const;
  // For metrics. From any thread.
  StageReading Reading() const;

  const RunId& run() const { return assignment_.run; }
  Epoch epoch() const { return assignment_.epoch; }
  const CellId& cell() const { return cell_; }
  const std::shared_ptr<TraceLog>& trace() const { return trace_; }

 private:
  Status Prepare();
  // `text`: null in the middle. `begun_from`: the checkpoint that the stage was restored from, or
  // null.
  Status MakeExecutor(std::shared_ptr<WindowSource> text, const StageSnapshot* begun_from);
  // Null where the stage has no replicas.
  StatusOr<std::unique_ptr<ReplicaExchange>> MakeExchange(const StageSnapshot* begun_from);
  uint64_t Numerics() const;              // v1::StepReport's
  std::vector<DeviceName> Ranks() const;  // StageOptions::ranks
  // What the assignment says of this cell, and whether this worker can do it.
  Status Check();
  void DropResidentUnlessFit(const ResidentIdentity& wanted, const ParametersOrigin& origin);
  void ReportForgotten();
  // Workers that read the same data sets give each other chunks of them, while the stage trains.
  void MeetReaders();
  void LeaveReaders();
  Status WaitForStart();
  void Report(v1::WorkerMessage message);
  void ReportError(const Status& status);
  // Until the last step, watched.
  Status Train();
  // Another process has to go on: tells the coordinator, and ends this one.
  void GiveUp(v1::WorkerFault fault, const std::string& message);
  void SayMemory();
  bool Cancelled() const;
  bool AllFinished() const;

  const Resources& resources_;
  const Assignment assignment_;
  const CellId cell_;
  const std::string link_secret_;
  // Of the checkpoint that the epoch begins from: of its own parameters, and of its boundaries.
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
  std::shared_ptr<SetChunks> chunks_;  // null: it reads no data sets
  bool gives_model_up_ = false;        // no epoch may go on with it

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<ChunkPeers> readers_;  // null: none was met yet
  std::optional<uint64_t> ready_with_;   // parameters
  bool started_ = false;
  std::optional<std::string> cancelled_;
  bool all_finished_ = false;
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_RPC_EPOCH_RUN_H_
