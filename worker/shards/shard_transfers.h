// Transfers files of a checkpoint from the store of one worker, the source, to the store of
// another, the holder. It uses a separate link while both train. A transfer makes a copy for
// safety, or brings a stage's state to the worker that will hold the stage.
//
//   source                                  holder
//     dials or is dialled, as commanded       does the opposite
//                                 <---       number of bytes that may be sent
//     the files, coded, in order  --->       (worker/checkpoint/shard_coding.h)
//                                 <---       more bytes ... ; stored, or the error
//     closes the link, answers
//
// A paced transfer (ShardPath) sends small pieces while no tensor is in flight at either worker.
// While tensors are in flight, it takes only a small share of the line. Other transfers go at full
// speed.
//
// Thread-safe. Handle does not wait for transfers. Each transfer has a thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "longhaul/v1/worker.pb.h"
#include "transport/p2p/link.h"
#include "worker/checkpoint/shard_store.h"
#include "worker/pipeline/traffic_watch.h"

namespace longhaul::worker {

class ShardTransfers {
 public:
  // `send` gets the answers, on the threads of transfers, so it must be thread-safe. What
  // `transports` refers to, `shards` and `traffic` must outlive this object.
  ShardTransfers(transport::TransportsByName transports, ShardStore* shards, TrafficWatch* traffic,
                 std::function<void(v1::WorkerMessage)> send);
  ~ShardTransfers();

  // Cancels all transfers and waits until they have ended. Later commands do nothing. Idempotent.
  void Shutdown();

  // Begins the transfer of `command`: as source if `command` has check_shards with `to`, as holder
  // if it has take_shards. A command that is repeated during its transfer has no effect. At most 64
  // transfers run at once; a further command is dropped.
  void Handle(v1::WorkerCommand command);
  // Cancels transfers that began in older epochs of the run, because their files must not replace
  // files that this epoch uses.
  void EpochBegins(const RunId& run, Epoch epoch);

 private:
  class Conversation;
  struct Transfer;

  using Shared = std::shared_ptr<Conversation>;
  void GiveUpBefore(const std::string& run, uint64_t epoch);  // the caller holds mutex_
  void Run(const v1::WorkerCommand& command, const Shared& conversation);
  // Sends the files and answers.
  void Send(const v1::WorkerCommand& command, const Shared& conversation);
  // `sent`: number of bytes sent.
  Status SendFiles(const v1::WorkerCommand& command, const Shared& conversation, uint64_t* sent);
  void Take(const v1::WorkerCommand& command, const Shared& conversation);
  Status TakeFiles(const v1::WorkerCommand& command, const Shared& conversation);
  void Open(const v1::WorkerCommand& command, uint64_t check, const v1::ShardPath& path,
            const Shared& conversation);

  const transport::TransportsByName transports_;
  ShardStore* const shards_;
  TrafficWatch* const traffic_;
  const std::function<void(v1::WorkerMessage)> send_;

  std::mutex mutex_;
  // Key: the check's number, and whether this side receives.
  std::map<std::pair<uint64_t, bool>, std::unique_ptr<Transfer>> transfers_;
  bool closing_ = false;
};

}  // namespace longhaul::worker
