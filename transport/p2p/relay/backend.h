// The backend itself, for tests that put faults around it.
#ifndef LONGHAUL_TRANSPORT_P2P_RELAY_BACKEND_H_
#define LONGHAUL_TRANSPORT_P2P_RELAY_BACKEND_H_

#include <memory>
#include <string>

#include "transport/p2p/core/connection.h"
#include "transport/p2p/relay/factory.h"

namespace longhaul::transport::relay {

// `own`: a way at which it waits from Start on, and which is its address. Empty: none, as in
// programs; links need no sealing then only in tests of what is below.
std::unique_ptr<internal::Backend> NewBackend(const RelayedOptions& options,
                                              const std::string& own = "");

}  // namespace longhaul::transport::relay

#endif  // LONGHAUL_TRANSPORT_P2P_RELAY_BACKEND_H_
