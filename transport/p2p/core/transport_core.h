// A Transport over any backend: what a backend's factory returns.
#pragma once

#include <memory>

#include "base/status.h"
#include "transport/p2p/core/connection.h"
#include "transport/p2p/link.h"

namespace longhaul::transport::internal {

// Starts the loop and, on it, the backend. The backend lives and dies on the loop.
StatusOr<std::unique_ptr<Transport>> NewTransport(std::unique_ptr<Backend> backend);

}  // namespace longhaul::transport::internal
