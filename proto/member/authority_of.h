// Fetches the authority's certificate for a caller that only has a join token.
#pragma once

#include <string>

#include "base/clock.h"
#include "base/status.h"

namespace longhaul {

// Returns the authority's certificate (PEM) of the TLS 1.3 server at `address`, after checking that
// it has the expected fingerprint and has signed the server's certificate. Sends only the
// handshake. Blocks until `deadline` at most. kUnavailable: no server answers. kUnauthenticated:
// another authority, or no TLS 1.3.
StatusOr<std::string> AuthorityOf(const std::string& address, const std::string& fingerprint,
                                  Deadline deadline);

}  // namespace longhaul
