// Decides whether a worker obeys a command, from the leader that it obeyed last. Pure.
//
// Coordinators have terms, which grow. A worker that obeyed a term never obeys an older one, even
// in a later process, so a coordinator that was replaced, or whose records are from an old copy,
// commands nobody. Two processes may claim the same term, for example after a disk was copied: they
// have different tenures, and the worker obeys only the one that it met first.
#pragma once

#include <cstdint>
#include <string>

#include "longhaul/v1/worker.pb.h"

namespace longhaul::worker {

// The leader that a worker obeyed last.
struct Obeyed {
  uint64_t term = 0;  // 0: the worker has obeyed nobody
  std::string tenure;
  std::string address;  // where the leader was dialled, host:port
  uint64_t change = 0;  // number of the newest change of its store that the leader has named
  friend bool operator==(const Obeyed&, const Obeyed&) = default;
};

enum class Obedience : uint8_t {
  kObey,
  kObeyOnceStored,  // store the new leader on disk first (ObeyedAfter), then obey
  kRefuse,          // end the session, and try the next coordinator
};
Obedience ObedienceTo(const Obeyed& obeyed, const v1::WorkerCommand& command);
// Returns why a command is refused, as the predicate of a sentence about its coordinator: "has term
// 3, but ...".
std::string WhyRefused(const Obeyed& obeyed, const v1::WorkerCommand& command);
// Returns what the worker has obeyed after this command, which it must not refuse. `address`: where
// the command came from.
Obeyed ObeyedAfter(const Obeyed& obeyed, const v1::WorkerCommand& command,
                   const std::string& address);
// Fills in what a hello says of the last leader.
void SayObeyed(const Obeyed& obeyed, v1::Hello* hello);

}  // namespace longhaul::worker
