// Transfers files of a checkpoint from the store of one worker, the source, to the store of
// another, the holder. A transfer uses a link of its own, while both workers may train. It makes a
// copy for safety, or brings a stage's state to the worker that will run the stage.
//
//   source                                  holder
//     dials or listens, as commanded          listens or dials
//                                 <---       how many coded bytes the source may send
//     the files, coded, in order  --->       (worker/checkpoint/shard_coding.h)
//                                 <---       how many more; at the end: stored, or the error
//     closes the link, answers the coordinator
//
// The coordinator sends both workers a command with the same check number. A paced transfer
// (v1::ShardPath) sends small pieces while no tensor is in flight at either worker. While tensors
// are in flight, a paced transfer takes only a small share of the line (line_pace.h). Other
// transfers go at full speed.
//
// Thread-safe. Each transfer has a thread. Errors are part of the source's answer
// (v1::ShardState::copy_error).
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
  // `send` gets the answers of transfers in which this worker is the source: one v1::ShardsChecked
  // each. `send` is called on the threads of transfers, so it must be thread-safe. The transports
  // in `transports`, `shards` and `traffic` must outlive this object; none may be null.
  ShardTransfers(transport::TransportsByName transports, ShardStore* shards, TrafficWatch* traffic,
                 std::function<void(v1::WorkerMessage)> send);
  ~ShardTransfers();

  // Cancels all transfers, without answers, and waits until they have ended. Later commands do
  // nothing. Idempotent.
  void Shutdown();

  // Begins the transfer of `command` and returns at once. This worker is the source if `command`
  // has check_shards with `to`, the holder if it has take_shards. A command that is repeated during
  // its transfer has no effect. At most 64 transfers run at once; a further command is dropped
  // without an answer.
  void Handle(v1::WorkerCommand command);
  // Attempt `epoch` of the run begins: cancels transfers of older attempts, because their files
  // must not replace files that the new attempt uses.
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
