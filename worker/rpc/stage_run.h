// One assignment carried out: from Assign to the end of this stage.
//
// Run() on the agent's thread; Start, Stop, Checkpoint, Retune, Readdress and Cancel from any
// thread.
#ifndef LONGHAUL_WORKER_RPC_STAGE_RUN_H_
#define LONGHAUL_WORKER_RPC_STAGE_RUN_H_

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/cuda/device.h"
#include "base/status.h"
#include "longhaul/v1/worker.pb.h"
#include "run/file/run_spec.h"
#include "transport/p2p/link.h"
#include "worker/checkpoint/shard_store.h"
#include "worker/pipeline/boundary_dump.h"
#include "worker/pipeline/codec_thread.h"
#include "worker/pipeline/executor.h"
#include "worker/rpc/blob_fetcher.h"
#include "worker/rpc/shard_courier.h"

namespace longhaul::worker {

// What a daemon has once and every run uses.
struct Resources {
  // By the plan's names: "ucx", "grpc".
  std::map<std::string, transport::Transport*, std::less<>> transports;
  std::optional<cuda::Device> gpu;  // what stages compute on; nullopt: the CPU
  CodecThread* codec_thread = nullptr;
  ShardStore* shards = nullptr;
  BlobFetcher* blobs = nullptr;
  BlobFetcher* shard_copies = nullptr;  // shards of other workers, on their way into a stage
  ShardCourier* courier = nullptr;
  std::optional<BoundaryDumpOptions> dump;
  std::string messages_root;  // folder of what codecs with state remember (boundary_messages.h)
  std::function<void(v1::WorkerMessage)> send;  // thread-safe
};

class StageRun {
 public:
  StageRun(const Resources& resources, std::string run_id, v1::Assign assign);
  ~StageRun();

  // Prepares, says StageReady, waits for Start, trains, and then keeps the links open until Cancel,
  // because neighbours may still need them. Errors were reported when it returns.
  void Run();

  void Start();
  void RequestStop();
  void RequestCheckpoint();
  void RequestRetune(const v1::Retune& retune);
  void Readdress(const v1::Readdress& moved);
  // `finished`: every stage has finished its part.
  void Cancel(std::string reason, bool finished = false);
  // The coordinator asked again: says StageReady again if that is so.
  void RepeatReady();

  const std::string& run_id() const { return run_id_; }
  uint64_t epoch() const { return assign_.plan().epoch(); }
  uint32_t stage() const { return assign_.stage(); }
  const std::shared_ptr<TraceLog>& trace() const { return trace_; }

 private:
  Status Prepare();
  StatusOr<std::shared_ptr<BoundaryPort>> OpenPort(bool upstream,
                                                   std::shared_ptr<BoundaryMessages> messages,
                                                   Deadline deadline);
  Status AgreeOnMessages(Deadline deadline);
  Status Restore();
  StatusOr<std::shared_ptr<BoundaryMessages>> OpenMessages(bool upstream);
  void ReportForgotten();
  Status WaitForStart();
  void Report(v1::WorkerMessage message);
  void ReportError(const Status& status);
  void SayReady();
  void SayMemory() const;
  bool Cancelled() const;
  bool AllFinished() const;

  const Resources resources_;
  const std::string run_id_;
  const v1::Assign assign_;
  RunSpec spec_;
  std::unique_ptr<Stage> model_;
  std::unique_ptr<Batches> batches_;
  const std::shared_ptr<EventQueue> events_ = std::make_shared<EventQueue>();
  const std::shared_ptr<TraceLog> trace_ = std::make_shared<TraceLog>();
  std::shared_ptr<BoundaryPort> up_, down_;
  std::unique_ptr<Executor> executor_;
  std::vector<uint32_t> forgotten_;  // boundaries

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool ready_ = false, started_ = false;
  std::map<uint32_t, std::vector<std::string>> moved_;  // newest addresses by boundary
  std::optional<std::string> cancelled_;
  bool all_finished_ = false;
};

// Where the stages of a run have their tensors: a replay's, which sleep, on the host.
std::optional<cuda::Device> GpuOf(const RunSpec& spec, const std::optional<cuda::Device>& gpu);

// The stage options of a plan's stage.
StageOptions StageOptionsFor(const RunSpec& spec, uint32_t vocabulary, uint32_t first_layer,
                             uint32_t layers, bool first, bool last, uint32_t threads,
                             const std::optional<cuda::Device>& gpu);

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_RPC_STAGE_RUN_H_
