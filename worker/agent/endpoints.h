// The addresses that a worker advertises for its data transports: where it listens, addresses that
// the user names, or (`auto`) the address that this machine has towards its coordinator, which may
// change while the worker runs.
//
// Threads: one at a time.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "longhaul/v1/worker.pb.h"

namespace longhaul::worker {

// The value of --advertise that means the address towards the coordinator.
inline constexpr std::string_view kAdvertiseAuto = "auto";

// Returns the address from which this machine's packets to `coordinator` (host:port) leave, by the
// kernel's routing table. Looks up the name, which may block, but sends the coordinator nothing.
// Empty: no route.
std::string OwnAddressTowards(const std::string& coordinator);
// As above, for the first of `coordinators` that has a route.
std::string OwnAddressTowards(const std::vector<std::string>& coordinators);

class Endpoints {
 public:
  // `listening`: the address at which each transport listens, which is also advertised; empty: the
  // worker only dials. If `advertise` is not empty, it lists the addresses to advertise for the
  // transport `advertised` instead. `coordinator`: returns host:port of the current coordinator;
  // Find calls it.
  Endpoints(std::map<std::string, std::string> listening, std::string advertised,
            std::vector<std::string> advertise, std::function<std::string()> coordinator);

  // Returns the current endpoints. Looks up the coordinator's name, which may block. While the
  // coordinator has no route, own() keeps its last value.
  std::vector<v1::DataEndpoint> Find();
  // This machine's address towards the coordinator, by the last Find that found a route. Empty: no
  // Find has.
  const std::string& own() const { return own_; }
  // Returns true if this machine has lost the address own(), and now reaches the coordinator from
  // another address. While the machine has own(), connections from it still work, so the result is
  // false. Never blocks.
  bool Moved() const;

 private:
  const std::map<std::string, std::string> listening_;
  const std::string advertised_;
  const std::vector<std::string> advertise_;
  const std::function<std::string()> coordinator_;
  sockaddr_storage route_{};  // the coordinator's address, by the last Find with a route
  socklen_t route_bytes_ = 0;
  std::string own_;  // this machine's address on that route
};

}  // namespace longhaul::worker
