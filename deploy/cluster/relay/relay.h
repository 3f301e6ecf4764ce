// The relay of a local cluster: a process that takes what workers send out of their ports of the
// bridge's namespace, holds it for as long as the way takes, and puts it into the receiver's port.
// For kernels without netem; tc shapes rates before and behind it as ever.
#ifndef LONGHAUL_DEPLOY_CLUSTER_RELAY_RELAY_H_
#define LONGHAUL_DEPLOY_CLUSTER_RELAY_RELAY_H_

#include <cstdint>
#include <string>

#include "base/status.h"

namespace longhaul::relay {

// Serves requests at `socket_path` (control.h) until SIGTERM or SIGINT. Forwards packets in
// `threads` further threads (0: ForwarderThreads()). Blocks these signals: call from the main
// thread before others start.
Status RunRelay(const std::string& socket_path, uint32_t threads = 0);

}  // namespace longhaul::relay

#endif  // LONGHAUL_DEPLOY_CLUSTER_RELAY_RELAY_H_
