// Links over plain TCP, for every network: one listening port, IPv4 and IPv6, addresses that are
// public or mapped. The listener withstands hostile bytes (proto/rpc/listener.h).
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "transport/p2p/link.h"

namespace longhaul::transport::tcp {

struct TcpOptions {
  // The address to listen at: "0.0.0.0:7100", "[::]:0"; port 0 takes any free one. Peers may reach
  // it at another address.
  std::string bind_address;
};

// kAlreadyExists: the port is in use. kInvalidArgument: not an address. kFailedPrecondition: not an
// address of this host.
StatusOr<std::unique_ptr<Transport>> CreateTransport(const TcpOptions& options);

}  // namespace longhaul::transport::tcp
