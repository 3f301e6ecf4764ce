// Links over gRPC: one listening port that may be behind port mapping, HTTP/2, and the credentials
// of proto/rpc. For open networks and machines behind port mapping. Strangers' bytes on the port do
// no harm (docs/gotchas/transport.md).
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "transport/p2p/link.h"

namespace longhaul::transport::grpc {

struct GrpcOptions {
  // Where to listen: "0.0.0.0:7100", "[::]:0"; port 0 takes any free one. Others may reach it at
  // another address.
  std::string bind_address;
};

// kAlreadyExists: port in use. kInvalidArgument: not an address. kFailedPrecondition: not an
// address of this host.
StatusOr<std::unique_ptr<Transport>> CreateTransport(const GrpcOptions& options);

}  // namespace longhaul::transport::grpc
