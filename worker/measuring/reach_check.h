// Carries out TryReach commands, which check whether one worker reaches another at each of its
// addresses. The coordinator tells one of the two workers to dial, and the other to wait. The
// dialler opens a link as for a run, so only an answer of the right worker counts. A link that
// opens is closed at once. The dialler reports the result; the waiting side stops waiting at the
// check's time limit.
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
  // `send` gets the answers, on the transports' loops; it must be thread-safe. The transports must
  // live until Shutdown.
  ReachChecks(transport::TransportsByName transports, std::function<void(v1::WorkerMessage)> send);

  // Begins the check of `command`, which must have try_reach. Does nothing if the same check is in
  // progress, or if this worker lacks the transport.
  void Handle(const v1::WorkerCommand& command);
  // Ignores later commands. Does not end checks in progress; these end with the transports.
  void Shutdown();

 private:
  // Shared with callbacks of links, which may run after the ReachChecks is gone.
  struct Shared {
    std::function<void(v1::WorkerMessage)> send;
    std::mutex mutex;
    std::set<uint64_t> under_way;  // checks in progress that this side dials
    bool closing = false;
  };
  class Attempt;
  class Answer;

  const transport::TransportsByName transports_;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace longhaul::worker
