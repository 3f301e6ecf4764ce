// Links over gRPC, for open networks and machines behind port mapping: one listening port, HTTP/2,
// and the credentials of proto/rpc. The listener withstands hostile bytes from peers that know no
// link's secret (docs/gotchas/transport.md).
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "transport/p2p/link.h"

namespace longhaul::transport::grpc {

struct GrpcOptions {
  // The address to listen at: "0.0.0.0:7100", "[::]:0"; port 0 takes any free one. Peers may reach
  // it at another address.
  std::string bind_address;
};

// kAlreadyExists: the port is in use. kInvalidArgument: not an address. kFailedPrecondition: not an
// address of this host. kInternal: gRPC cannot start its server.
StatusOr<std::unique_ptr<Transport>> CreateTransport(const GrpcOptions& options);

}  // namespace longhaul::transport::grpc
