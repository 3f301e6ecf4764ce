// Makes transports whose links stay within one process, for tests. A transport's address is its
// name. Each transport has its own loop thread.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "transport/p2p/link.h"

namespace longhaul::transport::loopback {

struct LoopbackOptions {
  std::string name;  // the address; empty: the transport makes a new name
};

// kAlreadyExists: another transport in this process has the name.
StatusOr<std::unique_ptr<Transport>> CreateTransport(const LoopbackOptions& options);

}  // namespace longhaul::transport::loopback
