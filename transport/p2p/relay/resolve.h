// The addresses of a host, without keeping the loop.
#ifndef LONGHAUL_TRANSPORT_P2P_RELAY_RESOLVE_H_
#define LONGHAUL_TRANSPORT_P2P_RELAY_RESOLVE_H_

#include <sys/socket.h>

#include <functional>
#include <memory>

#include "base/event_loop.h"
#include "base/status.h"
#include "proto/rpc/address.h"

namespace longhaul::transport::relay {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t bytes = 0;
};

// `done` runs on the loop, never inside: the first address that the host has. A name is looked up
// on a thread of its own, which may outlive the loop; then `done` does not run.
void Resolve(const std::shared_ptr<EventLoop>& loop, const HostPort& address,
             std::function<void(StatusOr<SocketAddress>)> done);

}  // namespace longhaul::transport::relay

#endif  // LONGHAUL_TRANSPORT_P2P_RELAY_RESOLVE_H_
