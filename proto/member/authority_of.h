// Fetches the authority's certificate for a caller that only has a join token.
#pragma once

#include <string>

#include "base/clock.h"
#include "base/status.h"

namespace longhaul {

// Asks the TLS 1.3 server at `address` (host:port) for its authority's certificate (PEM). Checks
// that this certificate has the expected fingerprint (that of the join token) and signed the
// server's own certificate. Sends only the handshake. Blocks until `deadline` at most, plus the
// time of a name lookup. kUnavailable: no server answers. kUnauthenticated: the server has another
// authority, or no TLS 1.3. Thread-safe.
StatusOr<std::string> AuthorityOf(const std::string& address, const std::string& fingerprint,
                                  Deadline deadline);

}  // namespace longhaul
