// Makes the UCX implementation of internal::Backend (core/connection.h). Private to this folder and
// its tests.
#pragma once

#include <memory>

#include "transport/p2p/core/connection.h"
#include "transport/p2p/ucx/factory.h"

namespace longhaul::transport::ucx {

std::unique_ptr<internal::Backend> NewBackend(const UcxOptions& options);

}  // namespace longhaul::transport::ucx
