// The gRPC backend of core/connection.h. The transport owns it and calls it on its EventLoop.
#ifndef LONGHAUL_TRANSPORT_P2P_GRPC_BACKEND_H_
#define LONGHAUL_TRANSPORT_P2P_GRPC_BACKEND_H_

#include <memory>

#include "transport/p2p/core/connection.h"
#include "transport/p2p/grpc/factory.h"

namespace longhaul::transport::grpc {

std::unique_ptr<internal::Backend> NewBackend(const GrpcOptions& options);

}  // namespace longhaul::transport::grpc

#endif  // LONGHAUL_TRANSPORT_P2P_GRPC_BACKEND_H_
