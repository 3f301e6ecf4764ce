// A connection whose messages are sealed (base/seal.h). Where LinkOptions::sealed is set, links
// wrap each of their connections in one after the handshake, whatever the backend.
//
// Of a message the payload is encrypted. The link header stays readable, is authenticated with it,
// and has the tag in its last field, so sealing adds no bytes. Messages are counted at both ends:
// one that is lost, repeated, out of order, changed or put in ends the connection before anybody
// reads it. A link then opens another one.
//
// Threads: the loop, as all connections.
#pragma once

#include <memory>
#include <string_view>

#include "transport/p2p/core/connection.h"

namespace longhaul::transport::internal {

// `connection` has carried its handshake and nothing else. Keys: base/seal.h's.
std::shared_ptr<Connection> SealConnection(std::shared_ptr<Connection> connection,
                                           std::string_view sending_key,
                                           std::string_view receiving_key);

}  // namespace longhaul::transport::internal
