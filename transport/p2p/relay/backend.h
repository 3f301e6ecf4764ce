// Makes the backend of relayed links without a transport around it, for tests that inject faults.
#pragma once

#include <memory>
#include <string>

#include "transport/p2p/core/connection.h"
#include "transport/p2p/relay/factory.h"

namespace longhaul::transport::relay {

// `own_way`: the relay and ticket where the backend waits for links from Start on, as other
// backends listen at an address; plain links may use it, too. Empty (in programs): the backend
// waits at the relays of the links that are expected, and carries sealed links only.
std::unique_ptr<internal::Backend> NewBackend(const RelayedOptions& options,
                                              const std::string& own_way = "");

}  // namespace longhaul::transport::relay
