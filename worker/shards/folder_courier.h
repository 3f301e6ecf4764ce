// Copies files of checkpoints between this worker's store and folders of object stores, in the
// background. The worker has no credentials for object stores: the coordinator signs an address for
// each object (SignObject).
//
// A file that is longer than the folder's piece size is several objects
// (run/stored/stored_checkpoint.h). A fetched file is checked by its length and hash, and appears
// in the worker's store whole or not at all.
//
// Thread-safe. A few threads do the work; commands beyond them wait. Errors are part of the answers
// (v1::ShardState): `problem` if the file is not as expected, on this worker's disk when it is
// written and in the folder when it is fetched; `copy_error` if it could not be copied.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "longhaul/v1/worker.pb.h"
#include "worker/checkpoint/shard_store.h"

namespace longhaul::worker {

// Reads and writes single objects for a run. An interface, so that tests need no server.
class Objects {
 public:
  using GivenUp = std::function<bool()>;
  virtual ~Objects() = default;
  // Writes an object whole. Blocks.
  virtual Status Write(const std::string& run, const std::string& address,
                       std::span<const std::byte> bytes, Deadline deadline,
                       const GivenUp& given_up) = 0;
  // Passes an object of `bytes` bytes on in order. kNotFound: there is no such object. kDataLoss:
  // it has another length. Blocks.
  virtual Status Read(const std::string& run, const std::string& address, uint64_t bytes,
                      const std::function<Status(std::span<const std::byte>)>& take,
                      Deadline deadline, const GivenUp& given_up) = 0;
};

class FolderCourier {
 public:
  // `send` gets one v1::ShardsChecked for each command; it must be thread-safe. `objects` and
  // `shards` must outlive this object.
  FolderCourier(Objects* objects, ShardStore* shards, std::function<void(v1::WorkerMessage)> send);
  ~FolderCourier();

  // Cancels all commands, without answers, and waits until they have ended. Idempotent.
  void Shutdown();
  // Queues a command that has check_shards with `to_folder`, or take_shards with `from_folder`, and
  // returns at once. A command that is repeated before its answer has no effect.
  void Handle(v1::WorkerCommand command);
  // Attempt `epoch` of the run begins: cancels fetches for older attempts, because their files must
  // not replace files that the new attempt uses.
  void EpochBegins(const RunId& run, Epoch epoch);

 private:
  struct Job;

  void Loop();
  void Answer(const v1::WorkerCommand& command, const Objects::GivenUp& given_up);
  void Write(const v1::WorkerCommand& command, const Objects::GivenUp& given_up,
             v1::ShardsChecked* answer);
  void Fetch(const v1::WorkerCommand& command, const Objects::GivenUp& given_up,
             v1::ShardsChecked* answer);

  Objects* const objects_;
  ShardStore* const shards_;
  const std::function<void(v1::WorkerMessage)> send_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Job>> waiting_;
  std::vector<std::shared_ptr<Job>> under_way_;
  bool closing_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace longhaul::worker
