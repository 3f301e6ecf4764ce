// A Transport over any backend: what a backend's factory returns.
#ifndef LONGHAUL_TRANSPORT_P2P_CORE_TRANSPORT_CORE_H_
#define LONGHAUL_TRANSPORT_P2P_CORE_TRANSPORT_CORE_H_

#include <memory>

#include "base/status.h"
#include "transport/p2p/core/connection.h"
#include "transport/p2p/link.h"

namespace longhaul::transport::internal {

// Starts the loop and, on it, the backend. The backend lives and dies on the loop.
StatusOr<std::unique_ptr<Transport>> NewTransport(std::unique_ptr<Backend> backend);

}  // namespace longhaul::transport::internal

#endif  // LONGHAUL_TRANSPORT_P2P_CORE_TRANSPORT_CORE_H_
