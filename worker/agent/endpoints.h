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

// This machine's address on the route to `coordinator` (host:port), by the kernel's routes. Sends
// nothing except the name lookup. Empty: no route.
std::string OwnAddressTowards(const std::string& coordinator);
// The same for the first coordinator that has a route.
std::string OwnAddressTowards(const std::vector<std::string>& coordinators);

class Endpoints {
 public:
  // `listening`: addresses by transport; empty: the worker only dials. `advertise`: addresses to
  // advertise for the transport `advertised` instead; empty: as for other transports.
  // `coordinator`: returns host:port of the current coordinator, called in each Find.
  Endpoints(std::map<std::string, std::string> listening, std::string advertised,
            std::vector<std::string> advertise, std::function<std::string()> coordinator);

  // Returns the current endpoints. Looks up the coordinator's name, which may block. Without a
  // route to the coordinator it repeats its last answer.
  std::vector<v1::DataEndpoint> Find();
  // This machine's address towards the coordinator at the last Find. Empty: no route.
  const std::string& own() const { return own_; }
  // True if this machine no longer has the address of the last Find and another address now leads
  // to the coordinator. Independent of the advertised addresses. Never blocks. False while the old
  // address exists, because connections that use it still work.
  bool Moved() const;

 private:
  const std::map<std::string, std::string> listening_;
  const std::string advertised_;
  const std::vector<std::string> advertise_;
  const std::function<std::string()> coordinator_;
  sockaddr_storage route_{};  // the coordinator at the last Find
  socklen_t route_bytes_ = 0;
  std::string own_;  // this machine's address on that route
};

}  // namespace longhaul::worker
