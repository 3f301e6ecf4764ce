// Looks up the addresses of hosts without blocking the loop.
#pragma once

#include <netdb.h>
#include <sys/socket.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/address.h"
#include "base/event_loop.h"
#include "base/status.h"

namespace longhaul::transport::stream {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t bytes = 0;
};

// Chooses the address to dial from the list that getaddrinfo returned: the first IPv4 address, as
// Listener does; if there is no IPv4 address, the first address. The result points into the list.
// Null: the list is empty (null).
const addrinfo* Preferred(const addrinfo* found);
// Blocks until a name server answers. kUnavailable: the name has no address.
StatusOr<SocketAddress> LookUp(const HostPort& address);

// Threads: all on the loop.
class Resolver : public std::enable_shared_from_this<Resolver> {
 public:
  using Done = std::function<void(const StatusOr<SocketAddress>&)>;
  // `look_up` runs on other threads, maybe several at once.
  explicit Resolver(std::shared_ptr<EventLoop> loop,
                    std::function<StatusOr<SocketAddress>(const HostPort&)> look_up = &LookUp)
      : loop_(std::move(loop)), look_up_(std::move(look_up)) {}

  // Looks up `address`; `done` runs later, on the loop, and gets the result of `look_up`. A look-up
  // of a name has its own thread. Calls for the same name before the answer share one look-up. The
  // thread may outlive the loop and this object; then `done` does not run.
  void Resolve(const HostPort& address, Done done);

 private:
  void Finish(const std::string& name, const StatusOr<SocketAddress>& found);

  const std::shared_ptr<EventLoop> loop_;
  const std::function<StatusOr<SocketAddress>(const HostPort&)> look_up_;
  std::map<std::string, std::vector<Done>> asked_;  // by host:port, until the answer
};

}  // namespace longhaul::transport::stream
