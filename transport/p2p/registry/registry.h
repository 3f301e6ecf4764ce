// Makes transports by their kind. Programs that carry links include only this header, not those of
// the backends.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "run/kinds/transports.h"
#include "transport/p2p/link.h"

namespace longhaul::transport {

// Options of all backends; each backend reads the ones that it needs.
struct TransportOptions {
  std::string bind_address;    // where to listen, "10.77.0.2:0"; port 0: any free port
  std::string network_device;  // for UCX, "eth0"; empty: the device that has the address
  // Returns host:port of the current coordinator, which carries links as a relay. Thread-safe.
  std::function<std::string()> coordinator = {};
};

// Makes a transport, which starts to listen. Errors are those of the backend's factory.
StatusOr<std::unique_ptr<Transport>> CreateTransport(TransportKind kind,
                                                     const TransportOptions& options);

}  // namespace longhaul::transport
