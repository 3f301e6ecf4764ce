// Where others reach a worker's data transports, as its hello says: at the addresses that it
// listens on, at those that a person names, or (`auto`) at the address that this machine has
// towards its coordinator, which may change while the worker runs.
//
// Threads: one at a time.
#ifndef LONGHAUL_WORKER_RPC_ENDPOINTS_H_
#define LONGHAUL_WORKER_RPC_ENDPOINTS_H_

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

// Of --advertise.
inline constexpr std::string_view kAdvertiseAuto = "auto";

// The address that this machine has on the way to `coordinator` (host:port), by the kernel's
// routes; nothing is sent but the question for the host's name. Empty: there is no way.
std::string OwnAddressTowards(const std::string& coordinator);
// The same of the first of several that there is a way to.
std::string OwnAddressTowards(const std::vector<std::string>& coordinators);

class Endpoints {
 public:
  // `listening`: addresses by transport; empty: it dials, and nobody can dial it. `advertise`: of
  // `advertised`, one of the transports, instead of where it listens; none: as the others.
  // `coordinator`: host:port of the one at hand, asked for in each Find.
  Endpoints(std::map<std::string, std::string> listening, std::string advertised,
            std::vector<std::string> advertise, std::function<std::string()> coordinator);

  // As of now. Looks up the coordinator's name, which may take a while; where there is no way to
  // the coordinator it says what it said before.
  std::vector<v1::DataEndpoint> Find();
  // This machine's address towards the coordinator of the last Find. Empty: there was no way.
  const std::string& own() const { return own_; }
  // Whether the address towards the coordinator of the last Find is this machine's no more, and
  // another one leads there; whatever is advertised. Never blocks. False while the old one is
  // there: what uses it works.
  bool Moved() const;

 private:
  const std::map<std::string, std::string> listening_;
  const std::string advertised_;
  const std::vector<std::string> advertise_;
  const std::function<std::string()> coordinator_;
  sockaddr_storage route_{};  // the coordinator, as Find saw it
  socklen_t route_bytes_ = 0;
  std::string own_;  // this machine's address on the way there
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_RPC_ENDPOINTS_H_
