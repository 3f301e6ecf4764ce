// A connection whose messages are sealed (base/seal.h). Where LinkOptions::sealed is set, links
// wrap each of their connections in one after the handshake, whatever the backend.
//
// Only the payload of a message is encrypted. The link header stays readable, is authenticated with
// the payload, and holds the tag in its last field, so sealing adds no bytes. Both ends count
// messages: a lost, repeated, reordered, changed or inserted message ends the connection before its
// payload is used. The link then opens another connection.
//
// Threads: the loop, as all connections.
#pragma once

#include <memory>
#include <string_view>

#include "transport/p2p/core/connection.h"

namespace longhaul::transport::internal {

// `connection` has carried its handshake and nothing else. Keys come from base/seal.h.
std::shared_ptr<Connection> SealConnection(std::shared_ptr<Connection> connection,
                                           std::string_view sending_key,
                                           std::string_view receiving_key);

}  // namespace longhaul::transport::internal
