// Makes the loopback backend of core/connection.h's interface; private to this folder and its
// tests. The backend copies each message and posts it to the peer's loop.
#pragma once

#include <memory>

#include "transport/p2p/core/connection.h"
#include "transport/p2p/loopback/factory.h"

namespace longhaul::transport::loopback {

std::unique_ptr<internal::Backend> NewBackend(const LoopbackOptions& options);

}  // namespace longhaul::transport::loopback
