// Carries out TryReach commands: checks whether this worker reaches another worker at each of its
// addresses. Dials each address by a link like a run's, so that only the right worker's answer
// counts. Both sides close the link at once; the dialled side stops waiting at the check's limit.
//
// Handle and Shutdown are thread-safe and never block. The work runs on the transports' loops,
// concurrently with everything else.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "longhaul/v1/worker.pb.h"
#include "transport/p2p/link.h"

namespace longhaul::worker {

class ReachChecks {
 public:
  // `send` receives the answers; thread-safe. The transports must live until Shutdown.
  ReachChecks(transport::TransportsByName transports, std::function<void(v1::WorkerMessage)> send);

  // `command` has try_reach. Handling it twice has no further effect.
  void Handle(const v1::WorkerCommand& command);
  // Ignores later commands. Checks in progress end with the transports.
  void Shutdown();

 private:
  // State of the answers. Outlives the ReachChecks if links end late.
  struct Shared {
    std::function<void(v1::WorkerMessage)> send;
    std::mutex mutex;
    std::set<uint64_t> under_way;  // checks that this side dials
    bool closing = false;
  };
  class Attempt;
  class Answer;

  const transport::TransportsByName transports_;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace longhaul::worker
