// Finds the addresses that a worker advertises for its data transports. They are the addresses
// where it listens, addresses that the user names, or for `auto` this machine's address on its
// route to the coordinator. The `auto` address may change while the worker runs.
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
// Tries the coordinators in their order, and returns the address that this machine uses towards the
// first one to which it has a route. Returns "" if it has a route to none.
std::string OwnAddressTowards(const std::vector<std::string>& coordinators);

class Endpoints {
 public:
  // `listening`: for each transport, by name, the address at which it listens and which is
  // advertised; an empty address: the transport only dials. `advertise`: the addresses to advertise
  // for the transport `advertised` instead; none: its listening address. `coordinator` returns
  // host:port of the current coordinator; Find calls it.
  Endpoints(std::map<std::string, std::string> listening, std::string advertised,
            std::vector<std::string> advertise, std::function<std::string()> coordinator);

  // Returns the endpoints to advertise now. Looks up the coordinator's name, which may block. If
  // there is no route to the coordinator, own() keeps its last value.
  std::vector<v1::DataEndpoint> Find();
  // This machine's address on its route to the coordinator, from the last Find that found a route.
  // Empty: no Find has found one.
  const std::string& own() const { return own_; }
  // Returns true if this machine has lost the address own() and now reaches the coordinator from
  // another address. Returns false while the machine has own(), because connections from own()
  // still work. Never blocks.
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
