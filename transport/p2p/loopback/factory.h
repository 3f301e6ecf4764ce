// Links within one process, for tests: transports find one another by name. Each transport has a
// loop thread of its own.
#ifndef LONGHAUL_TRANSPORT_P2P_LOOPBACK_FACTORY_H_
#define LONGHAUL_TRANSPORT_P2P_LOOPBACK_FACTORY_H_

#include <memory>
#include <string>

#include "base/status.h"
#include "transport/p2p/link.h"

namespace longhaul::transport::loopback {

struct LoopbackOptions {
  std::string name;  // the address; empty: a new one
};

// kAlreadyExists if the name is taken.
StatusOr<std::unique_ptr<Transport>> CreateTransport(const LoopbackOptions& options);

}  // namespace longhaul::transport::loopback

#endif  // LONGHAUL_TRANSPORT_P2P_LOOPBACK_FACTORY_H_
