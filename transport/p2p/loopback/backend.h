// Makes the loopback implementation of internal::Backend (core/connection.h). Private to this
// folder and its tests. This backend copies each message and posts the copy to the peer's loop.
#pragma once

#include <memory>

#include "transport/p2p/core/connection.h"
#include "transport/p2p/loopback/factory.h"

namespace longhaul::transport::loopback {

std::unique_ptr<internal::Backend> NewBackend(const LoopbackOptions& options);

}  // namespace longhaul::transport::loopback
