// The loopback backend of core/connection.h, for links within one process: messages are copied and
// posted to the peer's EventLoop. The transport owns it and calls it on its own EventLoop.
#ifndef LONGHAUL_TRANSPORT_P2P_LOOPBACK_BACKEND_H_
#define LONGHAUL_TRANSPORT_P2P_LOOPBACK_BACKEND_H_

#include <memory>

#include "transport/p2p/core/connection.h"
#include "transport/p2p/loopback/factory.h"

namespace longhaul::transport::loopback {

std::unique_ptr<internal::Backend> NewBackend(const LoopbackOptions& options);

}  // namespace longhaul::transport::loopback

#endif  // LONGHAUL_TRANSPORT_P2P_LOOPBACK_BACKEND_H_
