// Makes the TCP implementation of internal::Backend (core/connection.h). Private to this folder and
// its tests.
#pragma once

#include <memory>

#include "transport/p2p/core/connection.h"
#include "transport/p2p/tcp/factory.h"

namespace longhaul::transport::tcp {

std::unique_ptr<internal::Backend> NewBackend(const TcpOptions& options);

}  // namespace longhaul::transport::tcp
