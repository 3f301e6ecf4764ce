// Links between two sides neither of which can be dialled: both dial a relay (transport/relay),
// which joins them. An address is a way (transport/relay/ticket.h). Nobody listens here: who
// expects a link waits at LinkOptions::wait_at. The relay is not trusted, so links are sealed.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "transport/p2p/link.h"

namespace longhaul::transport::relay {

struct RelayedOptions {
  // host:port of the coordinator at hand, asked for with each way that names no host: such a way is
  // at the coordinator's. Called on the transport's loop and by who waits; thread-safe.
  std::function<std::string()> coordinator;
};

StatusOr<std::unique_ptr<Transport>> CreateTransport(const RelayedOptions& options);

}  // namespace longhaul::transport::relay
