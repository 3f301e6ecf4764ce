// How somebody who has nothing but a join token comes to know his coordinator.
#ifndef LONGHAUL_PROTO_MEMBER_AUTHORITY_OF_H_
#define LONGHAUL_PROTO_MEMBER_AUTHORITY_OF_H_

#include <string>

#include "base/clock.h"
#include "base/status.h"

namespace longhaul {

// The certificate (PEM) of the authority of whoever serves TLS 1.3 at `address`. It has the
// fingerprint that is expected, and has signed what the server showed. Not a byte is sent but the
// handshake's. Blocks, until `deadline` at most.
// kUnavailable: nobody answers. kUnauthenticated: another authority, or no TLS 1.3.
StatusOr<std::string> AuthorityOf(const std::string& address, const std::string& fingerprint,
                                  Deadline deadline);

}  // namespace longhaul

#endif  // LONGHAUL_PROTO_MEMBER_AUTHORITY_OF_H_
