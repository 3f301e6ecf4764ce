// A connection whose messages are sealed: encrypted and authenticated (base/seal.h). If
// LinkOptions::sealed is set, a link wraps both its connections in this way after the handshake,
// whatever the backend.
//
// Only the payload of a message is encrypted. The link header stays readable, but is authenticated
// with the payload. The header's last field holds the authentication tag, so sealing adds no bytes.
// Both ends count messages. So a lost, repeated, reordered, changed or inserted message ends the
// connection with kUnavailable before its payload is used; the link then opens another connection.
//
// Threads: all calls on the loop, as for every Connection.
#pragma once

#include <memory>
#include <string_view>

#include "transport/p2p/core/connection.h"

namespace longhaul::transport::internal {

// Returns a connection that seals the messages of `connection`, which must have carried its
// handshake and nothing else. The keys have kSealKeyBytes; each end's sending key is the other
// end's receiving key.
std::shared_ptr<Connection> SealConnection(std::shared_ptr<Connection> connection,
                                           std::string_view sending_key,
                                           std::string_view receiving_key);

}  // namespace longhaul::transport::internal
