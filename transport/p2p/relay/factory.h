// Links between two sides neither of which can be dialled: both dial a relay (transport/relay),
// which joins them. An address is a way (transport/relay/ticket.h). Nobody listens here: who
// expects a link waits at LinkOptions::wait_at. The relay is not trusted, so links are sealed.
#ifndef LONGHAUL_TRANSPORT_P2P_RELAY_FACTORY_H_
#define LONGHAUL_TRANSPORT_P2P_RELAY_FACTORY_H_

#include <memory>
#include <string>

#include "base/status.h"
#include "transport/p2p/link.h"

namespace longhaul::transport::relay {

struct RelayedOptions {
  // host:port; at its host are the ways that name none.
  std::string coordinator;
};

StatusOr<std::unique_ptr<Transport>> CreateTransport(const RelayedOptions& options);

}  // namespace longhaul::transport::relay

#endif  // LONGHAUL_TRANSPORT_P2P_RELAY_FACTORY_H_
