// The UCX backend of core/connection.h. The transport owns it and calls it on its EventLoop.
#ifndef LONGHAUL_TRANSPORT_P2P_UCX_BACKEND_H_
#define LONGHAUL_TRANSPORT_P2P_UCX_BACKEND_H_

#include <memory>

#include "transport/p2p/core/connection.h"
#include "transport/p2p/ucx/factory.h"

namespace longhaul::transport::ucx {

std::unique_ptr<internal::Backend> NewBackend(const UcxOptions& options);

}  // namespace longhaul::transport::ucx

#endif  // LONGHAUL_TRANSPORT_P2P_UCX_BACKEND_H_
