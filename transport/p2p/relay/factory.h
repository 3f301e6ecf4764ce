// Links between two sides that cannot be dialled: both dial a relay (transport/relay), which joins
// them. An address is a way (transport/relay/ticket.h). This transport does not listen: a side that
// expects a link waits at LinkOptions::wait_at. The relay is not trusted, so links are sealed.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "transport/p2p/link.h"

namespace longhaul::transport::relay {

struct RelayedOptions {
  // Returns host:port of the current coordinator, for ways that name no host: such a way is at the
  // coordinator's host. Called on the transport's loop and by sides that wait; thread-safe.
  std::function<std::string()> coordinator;
};

StatusOr<std::unique_ptr<Transport>> CreateTransport(const RelayedOptions& options);

}  // namespace longhaul::transport::relay
