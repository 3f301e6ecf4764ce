// Asks another coordinator whether it leads, and with which term.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "base/status.h"

namespace longhaul::coordinator {

// Asks the coordinator at `address` (host:port) for its term. Blocks for at most `limit`.
// `trusted`: certificates (PEM) of the authorities of both. kFailedPrecondition: the coordinator
// there does not lead. Other errors: the call failed, so the term is unknown.
StatusOr<uint64_t> AskTerm(const std::string& address, const std::string& trusted,
                           absl::Duration limit);

}  // namespace longhaul::coordinator
