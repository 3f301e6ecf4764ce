// When the coordinator asks, checks this worker's checkpoint shards by their hashes, and uploads
// copies of these shards to the coordinator. A thread of the courier does this while the worker
// trains.
//
// Add is thread-safe. The courier's thread carries out the commands in order, but
// commands that only check go before commands that upload. Errors are part of the answers
// (v1::ShardState): `problem` if the file is not as expected, `copy_error` if an upload failed.
#pragma once

#include <grpcpp/client_context.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/status.h"
#include "longhaul/v1/worker.grpc.pb.h"
#include "proto/member/access.h"
#include "worker/checkpoint/shard_store.h"

namespace longhaul::worker {

class ShardCourier {
 public:
  // `access`: how to reach the coordinator. `send` gets one v1::ShardsChecked for each command, on
  // the courier's thread; `send` must not call Shutdown. `shards` must outlive this object.
  ShardCourier(std::shared_ptr<Access> access, const ShardStore* shards,
               std::function<void(v1::WorkerMessage)> send);
  ~ShardCourier();

  // Cancels the current upload and all waiting commands, and waits for the thread. Commands that
  // are cancelled or added later get no answer. Idempotent.
  void Shutdown();

  // Adds a command, which must have check_shards, and returns at once. Drops the command without an
  // answer if a command with the same check number already waits, or if 256 commands wait.
  void Add(v1::WorkerCommand command);

 private:
  void Loop();
  v1::WorkerMessage Answer(const v1::WorkerCommand& command);
  // Uploads one file. If several coordinators are configured, retries until one of them serves.
  Status SendCopy(const std::string& path, const ShardFile& file);
  Status TrySendCopy(const std::string& path, const ShardFile& file, Deadline deadline);
  Status SendChunks(const std::string& path, const ShardFile& file,
                    grpc::ClientWriter<v1::UploadChunk>* writer);
  bool Closing() const;

  StubOf<v1::WorkerService> stub_;
  const ShardStore* const shards_;
  const std::function<void(v1::WorkerMessage)> send_;

  mutable std::mutex mutex_;  // guards waiting_, call_ and closing_
  std::condition_variable changed_;
  std::deque<v1::WorkerCommand> waiting_;
  grpc::ClientContext* call_ = nullptr;  // the current upload
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace longhaul::worker
