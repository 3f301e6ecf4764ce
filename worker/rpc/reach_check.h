// TryReach carried out: whether one worker reaches another at each of its addresses. Each is
// dialled by a link of its own, as a run's link would be, so that it counts that the right one
// answers, not that something does. Both sides close the link at once; at who is dialled it ends
// with the check's limit at the latest.
//
// Handle and Shutdown are thread-safe and never block; the work is done on the transports' loops,
// beside whatever else the worker does.
#ifndef LONGHAUL_WORKER_RPC_REACH_CHECK_H_
#define LONGHAUL_WORKER_RPC_REACH_CHECK_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "longhaul/v1/worker.pb.h"
#include "transport/p2p/link.h"

namespace longhaul::worker {

class ReachChecks {
 public:
  // `send` takes the answers; thread-safe. The transports must live until Shutdown.
  ReachChecks(std::map<std::string, transport::Transport*, std::less<>> transports,
              std::function<void(v1::WorkerMessage)> send);

  // A command with try_reach. Twice is once.
  void Handle(const v1::WorkerCommand& command);
  // What still comes does nothing. What is under way ends with the transports.
  void Shutdown();

 private:
  // What the answer is made of; outlives this where links end late.
  struct Shared {
    std::function<void(v1::WorkerMessage)> send;
    std::mutex mutex;
    std::set<uint64_t> under_way;  // checks that this side dials
    bool closing = false;
  };
  class Attempt;
  class Answer;

  const std::map<std::string, transport::Transport*, std::less<>> transports_;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_RPC_REACH_CHECK_H_
