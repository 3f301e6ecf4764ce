// Makes the gRPC implementation of internal::Backend (core/connection.h). Private to this folder
// and its tests.
#pragma once

#include <memory>

#include "transport/p2p/core/connection.h"
#include "transport/p2p/grpc/factory.h"

namespace longhaul::transport::grpc {

std::unique_ptr<internal::Backend> NewBackend(const GrpcOptions& options);

}  // namespace longhaul::transport::grpc
