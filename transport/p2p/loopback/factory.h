// Links within one process, for tests: transports find one another by name. Each transport has a
// loop thread of its own.
#pragma once

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
