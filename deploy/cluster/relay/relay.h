// The relay of a local cluster, for kernels without netem: a process that takes frames from the
// senders' ports in the bridges' namespace, holds them for the path's delay, and puts them into the
// receiver's port. tc limits the rates before and after the relay.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace longhaul::relay {

// Serves requests at `socket_path` (control.h) until SIGTERM or SIGINT, then returns OK. Forwards
// packets in `threads` further threads (0: ForwarderThreads()). Blocks these signals, so call
// RunRelay from the main thread before other threads start. kFailedPrecondition: this process
// cannot have packet sockets. Other errors: those of ListenForRequests, or by errno.
Status RunRelay(const std::string& socket_path, uint32_t threads = 0);

}  // namespace longhaul::relay
