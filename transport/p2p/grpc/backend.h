// Makes the gRPC backend of core/connection.h's interface; private to this folder and its tests.
#pragma once

#include <memory>

#include "transport/p2p/core/connection.h"
#include "transport/p2p/grpc/factory.h"

namespace longhaul::transport::grpc {

std::unique_ptr<internal::Backend> NewBackend(const GrpcOptions& options);

}  // namespace longhaul::transport::grpc
