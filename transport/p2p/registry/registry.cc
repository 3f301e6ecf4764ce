#include "transport/p2p/registry/registry.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "transport/p2p/grpc/factory.h"
#include "transport/p2p/relay/factory.h"
#include "transport/p2p/tcp/factory.h"
#include "transport/p2p/ucx/factory.h"

namespace longhaul::transport {
namespace {

using Create = StatusOr<std::unique_ptr<Transport>> (*)(const TransportOptions& options);

constexpr std::pair<TransportKind, Create> kBackends[] = {
    {TransportKind::kUcx,
     [](const TransportOptions& options) {
       return ucx::CreateTransport(
           {.bind_address = options.bind_address, .network_device = options.network_device});
     }},
    {TransportKind::kGrpc,
     [](const TransportOptions& options) {
       return grpc::CreateTransport({.bind_address = options.bind_address});
     }},
    {TransportKind::kTcp,
     [](const TransportOptions& options) {
       return tcp::CreateTransport({.bind_address = options.bind_address});
     }},
    {TransportKind::kRelay,
     [](const TransportOptions& options) {
       return relay::CreateTransport({.coordinator = options.coordinator});
     }},
};

}  // namespace

Status MayUse(TransportKind kind) {
  return kind == TransportKind::kUcx ? ucx::MayUse() : absl::OkStatus();
}

StatusOr<std::unique_ptr<Transport>> CreateTransport(TransportKind kind,
                                                     const TransportOptions& options) {
  const auto* const backend =
      std::ranges::find(kBackends, kind, &std::pair<TransportKind, Create>::first);
  LH_CHECK(backend != std::end(kBackends), "no backend is registered for {}", ToString(kind));
  return backend->second(options);
}

}  // namespace longhaul::transport
