// Parses socket addresses, and finds the network interface of an address and the cause of a failed
// connect. UCX says "Endpoint timeout" for every failed connect, so this code finds the cause
// itself.
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

// Parses "10.77.0.2:41234" or "[fd00::1]:41234". With `resolve` also looks up host names, which may
// block. kInvalidArgument: not an address. kUnavailable: the name does not resolve.
StatusOr<SocketAddress> ParseAddress(const std::string& text, bool resolve);
std::string ToString(const SocketAddress& address);
// kInvalidArgument for IPv6: there UCX's TCP (1.13) writes past its buffers, on both sides.
Status CheckFamily(const SocketAddress& address);

// Returns the network interface that has this address, such as "eth0". kFailedPrecondition: none
// has it; the message names the existing interfaces and their addresses. kInvalidArgument: the
// wildcard address. kUnavailable: the interface is down or has no carrier; a new interface may need
// a moment.
StatusOr<std::string> InterfaceOf(const SocketAddress& address);

// Returns OK if a listener could bind here now. kAlreadyExists: the port is in use. Other errors
// come from the operating system.
Status CheckBind(const SocketAddress& address);

// Connects with a plain socket, for at most 500 ms, to learn why a connect failed. Call it on the
// loop; `done` runs there later, with a kUnavailable that names the cause.
void FindConnectError(const std::shared_ptr<EventLoop>& loop, const SocketAddress& address,
                      std::function<void(Status)> done);

}  // namespace longhaul::transport::ucx
