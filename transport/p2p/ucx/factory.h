// Links over UCX Active Messages on TCP, for trusted networks only. UCX aborts the process on
// foreign bytes (docs/gotchas/transport.md), so bind to a private network: a VPN or a cluster's own
// network. Only hosts of peers that are expected or dialled can connect to UCX's ports
// (port_filter.h), but every program on such a host can.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "transport/p2p/link.h"

namespace longhaul::transport::ucx {

struct UcxOptions {
  std::string bind_address;    // "10.77.0.2:0": one address of this host; port 0: any free port
  std::string network_device;  // "eth0"; empty: the device that has the address
  bool admits_all = false;     // for tests: every host can connect at all times
};

// OK: this process can use UCX here. kFailedPrecondition: the kernel filters no ports for it.
Status MayUse();

// Errors name the address. kInvalidArgument: not an address. kFailedPrecondition: not an address of
// this host. kAlreadyExists: the port is in use. kUnavailable: the interface is down, a host name
// has no address, or UCX fails.
StatusOr<std::unique_ptr<Transport>> CreateTransport(const UcxOptions& options);

}  // namespace longhaul::transport::ucx
