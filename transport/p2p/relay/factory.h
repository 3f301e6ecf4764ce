// Makes the transport for two sides that cannot reach each other: both dial a relay
// (transport/relay), which joins the two connections. The addresses of this transport are ways: a
// way is a relay's address with a ticket (transport/relay/ticket.h). This transport does not
// listen. Instead, a side that expects a link waits at the relays in LinkOptions::peer_at. The
// relay is not trusted, so links must be sealed (encrypted).
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "transport/p2p/link.h"

namespace longhaul::transport::relay {

struct RelayedOptions {
  // Returns host:port of the current coordinator. Needed for ways that name only a port: their
  // relay is at the coordinator's host. May be empty if no such way is used. Called on the
  // transport's loop; must be thread-safe.
  std::function<std::string()> coordinator;
};

// Fails only if the transport's event loop cannot start. Transport::address is empty.
StatusOr<std::unique_ptr<Transport>> CreateTransport(const RelayedOptions& options);

}  // namespace longhaul::transport::relay
