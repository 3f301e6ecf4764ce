// A Transport over any backend: what a backend's factory returns.
#pragma once

#include <memory>

#include "base/status.h"
#include "transport/p2p/core/connection.h"
#include "transport/p2p/link.h"

namespace longhaul::transport::internal {

// Starts a loop thread, and starts the backend on it. The transport owns the backend, and uses and
// destroys it on the loop. Errors are those of Backend::Start.
StatusOr<std::unique_ptr<Transport>> NewTransport(std::unique_ptr<Backend> backend);

}  // namespace longhaul::transport::internal
