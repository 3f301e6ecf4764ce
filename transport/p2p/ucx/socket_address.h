// Socket addresses, the network interface of an address, and the cause of a failed connect. UCX's
// own status for a failed connect is "Endpoint timeout" whatever the cause; people need to read the
// cause.
#pragma once

#include <sys/socket.h>

#include <functional>
#include <memory>
#include <string>

#include "base/event_loop.h"
#include "base/status.h"

namespace longhaul::transport::ucx {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

// Parses "10.77.0.2:41234" or "[fd00::1]:41234"; host names too, with `resolve` (which may block).
// kInvalidArgument; kUnavailable for a name that does not resolve.
StatusOr<SocketAddress> ParseAddress(const std::string& text, bool resolve);
std::string ToString(const SocketAddress& address);

// Returns the network interface that has this address: "eth0". kFailedPrecondition names the
// existing interfaces and their addresses if none matches; kInvalidArgument for the wildcard
// address; kUnavailable while the interface is down (a new one may take a moment).
StatusOr<std::string> InterfaceOf(const SocketAddress& address);

// Checks whether a listener could bind here now. kAlreadyExists for a port in use.
Status CheckBind(const SocketAddress& address);

// Connects with a plain socket to learn why a connect fails; takes at most 500 ms. Call it on the
// loop after a failure: `done` gets a kUnavailable that names the cause.
void FindConnectError(const std::shared_ptr<EventLoop>& loop, const SocketAddress& address,
                      std::function<void(Status)> done);

}  // namespace longhaul::transport::ucx
