// Carries out one assignment: one attempt at a run ("epoch") by one cell (a stage of one replica),
// from Assign to its end. The ResidentStage outlives the attempt; the next attempt may reuse it.
//
// Threads: Run and TakeResident on the agent's thread; all other methods on any thread.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <tuple>
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
  // `resident`: the stage that this worker has in memory, of any run; null: none. `resources` must
  // outlive this object. `audit_until`: set for an audit (worker/audit), which trains up to this
  // step. It neither validates nor samples, and opens no links to workers that read the same data.
  EpochRun(const Resources& resources, const v1::Assign& assign,
           std::unique_ptr<ResidentStage> resident, std::optional<Step> audit_until = std::nullopt);
  ~EpochRun();

  // Prepares the stage, reports StageReady, waits for Start and trains. When the stage has
  // finished, keeps the links open until Cancel, because neighbours may still need them. Reports
  // errors to the coordinator itself. Blocks until the attempt ends.
  void Run();
  // Returns the stage that the next attempt can reuse; null: the model cannot be used again. Call
  // it after Run.
  std::unique_ptr<ResidentStage> TakeResident();

  // Lets Run train. May come before the stage is ready.
  void Start();
  // RequestStop, RequestRetune and RequestSamples: as in Executor. Readdress: as in EpochPorts, and
  // also for the workers that read the same data sets.
  void RequestStop();
  void RequestRetune(const v1::Retune& retune);
  void RequestSamples(const v1::TakeSamples& wanted);
  void Readdress(const v1::Readdress& moved);
  // Makes Run end soon. `reason`: for the log and for errors. `finished`: true if all stages have
  // finished. The arguments of later calls are ignored.
  void Cancel(const std::string& reason, bool finished = false);
  // Reports StageReady again if the stage is ready, for a coordinator that repeats Assign.
  void SayReady();
  // Fills in what the stage is working on. Fills in nothing before the stage trains.
  void FillAtHand(v1::Heartbeat* heartbeat) const;
  // Returns the stage's metrics. There are no links before the stage trains.
  StageReading Reading() const;

  const RunId& run() const { return assignment_.run; }
  Epoch epoch() const { return assignment_.epoch; }
  Stamp stamp() const { return assignment_.stamp(); }
  const CellId& cell() const { return cell_; }
  const std::shared_ptr<TraceLog>& trace() const { return trace_; }

 private:
  Status Prepare();
  // `text`: null if the stage reads no text. `begun_from`: the checkpoint that the stage was
  // restored from; null: the run begins.
  Status MakeExecutor(std::shared_ptr<WindowSource> text, const StageSnapshot* begun_from);
  // Returns null if the stage has no replicas.
  StatusOr<std::unique_ptr<ReplicaExchange>> MakeExchange(const StageSnapshot* begun_from);
  uint64_t Numerics() const;              // for v1::StepReport::numerics
  std::vector<DeviceName> Ranks() const;  // for StageOptions::ranks
  // Checks this cell's part of the assignment, and that this worker can carry it out.
  Status Check();
  void DropResidentUnlessFit(const ResidentIdentity& wanted, const ParametersOrigin& origin);
  void ReportForgotten();
  // Opens links to workers that read the same data sets. Chunks go over these links while training.
  void MeetReaders();
  void LeaveReaders();
  Status WaitForStart();
  void Report(v1::WorkerMessage message);
  void ReportError(const Status& status);
  // Trains until the last step, under a watchdog.
  Status Train();
  // Tells the coordinator that this process cannot go on, and replaces it by a new one.
  void GiveUp(v1::WorkerFault fault, const std::string& message);
  void SayMemory();
  bool Cancelled() const;
  bool AllFinished() const;

  const Resources& resources_;
  const Assignment assignment_;
  const CellId cell_;
  const std::optional<Step> audit_until_;
  const std::string link_secret_;
  // The files of the checkpoint that the attempt begins from: the cell's parameters, and the token
  // tables of its boundaries.
  std::vector<v1::CheckpointFile> resume_files_, table_files_;
  // Implausible tensors that pass: step, edge, direction.
  std::set<std::tuple<uint64_t, EdgeId, Direction>> accepted_outliers_;
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
  bool gives_model_up_ = false;        // true: no later attempt may reuse the model

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<ChunkPeers> readers_;  // null: there are none, or not yet
  std::optional<uint64_t> ready_with_;   // number of parameters; nullopt: not ready
  bool started_ = false;
  std::optional<std::string> cancelled_;  // the reason
  bool all_finished_ = false;
};

}  // namespace longhaul::worker
