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
  std::string bind_address;    // where the transport listens, "10.77.0.2:0"; port 0: any free port
  std::string network_device;  // for UCX, "eth0"; empty: the device that has the address
  // For relayed links: returns host:port of the current coordinator. Must be thread-safe. May be
  // empty if every relay's address names a host (p2p/relay/factory.h).
  std::function<std::string()> coordinator = {};
};

// OK: this process can have transports of this kind here. kFailedPrecondition: why it cannot.
Status MayUse(TransportKind kind);

// Makes a transport of this kind, which starts to listen unless the kind is kRelay. Errors are
// those of the factory.h in the kind's folder.
StatusOr<std::unique_ptr<Transport>> CreateTransport(TransportKind kind,
                                                     const TransportOptions& options);

}  // namespace longhaul::transport
