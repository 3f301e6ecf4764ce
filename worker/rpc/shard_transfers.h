// Files of checkpoints on their way from one worker's store to another's, over a link of their own,
// whatever else the two do: copies behind the training, and what a new worker of a stage needs.
//
//   source                                  holder
//     dials or expects, as it is told         the other
//                                 <---        how far it may go
//     the files, coded, in order --->                         (worker/checkpoint/shard_coding.h)
//                                 <---        further ... ; kept, or why not
//     closes the link, answers
//
// What is paced goes in small pieces while no tensor is on its way at either end, and otherwise
// takes a small share of the line (ShardPath). What is not paced goes as fast as it can.
//
// Handle and Shutdown are thread-safe; Handle never blocks. Each transfer has a thread.
#ifndef LONGHAUL_WORKER_RPC_SHARD_TRANSFERS_H_
#define LONGHAUL_WORKER_RPC_SHARD_TRANSFERS_H_

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
  // `send` takes the answers; thread-safe. All must outlive this.
  ShardTransfers(std::map<std::string, transport::Transport*, std::less<>> transports,
                 ShardStore* shards, TrafficWatch* traffic,
                 std::function<void(v1::WorkerMessage)> send);
  ~ShardTransfers();

  // Gives up what is under way; what still comes does nothing. Idempotent.
  void Shutdown();

  // A command with check_shards that has a `to`, or with take_shards. Twice, while it is under way,
  // is once.
  void Handle(v1::WorkerCommand command);
  // Gives up what older epochs of the run began: what they knew of a step must not take the place
  // of what this one knows of it.
  void EpochBegins(const RunId& run, Epoch epoch);

 private:
  class Conversation;
  struct Transfer;

  using Shared = std::shared_ptr<Conversation>;
  void GiveUpBefore(const std::string& run, uint64_t epoch);  // locked
  void Run(const v1::WorkerCommand& command, const Shared& conversation);
  // And answers.
  void Send(const v1::WorkerCommand& command, const Shared& conversation);
  // `sent`: bytes that set out.
  Status SendFiles(const v1::WorkerCommand& command, const Shared& conversation, uint64_t* sent);
  void Take(const v1::WorkerCommand& command, const Shared& conversation);
  Status TakeFiles(const v1::WorkerCommand& command, const Shared& conversation);
  void Open(const v1::WorkerCommand& command, uint64_t check, const v1::ShardPath& path,
            const Shared& conversation);

  const std::map<std::string, transport::Transport*, std::less<>> transports_;
  ShardStore* const shards_;
  TrafficWatch* const traffic_;
  const std::function<void(v1::WorkerMessage)> send_;

  std::mutex mutex_;
  // By check; whether this side takes.
  std::map<std::pair<uint64_t, bool>, std::unique_ptr<Transfer>> transfers_;
  bool closing_ = false;
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_RPC_SHARD_TRANSFERS_H_
