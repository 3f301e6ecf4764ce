// Links over gRPC: one listening port that may be behind port mapping, HTTP/2, and the credentials
// of proto/rpc. For open networks and machines that cannot be dialled at their own address; what
// strangers send to the port harms nobody (docs/gotchas/transport.md).
#ifndef LONGHAUL_TRANSPORT_P2P_GRPC_FACTORY_H_
#define LONGHAUL_TRANSPORT_P2P_GRPC_FACTORY_H_

#include <memory>
#include <string>

#include "base/status.h"
#include "transport/p2p/link.h"

namespace longhaul::transport::grpc {

struct GrpcOptions {
  // Where to listen: "0.0.0.0:7100", "[::]:0"; port 0 takes any free one. Where others reach it may
  // be another address.
  std::string bind_address;
};

// kAlreadyExists for a port in use, kInvalidArgument for what is no address, kFailedPrecondition
// for an address that this host does not have.
StatusOr<std::unique_ptr<Transport>> CreateTransport(const GrpcOptions& options);

}  // namespace longhaul::transport::grpc

#endif  // LONGHAUL_TRANSPORT_P2P_GRPC_FACTORY_H_
