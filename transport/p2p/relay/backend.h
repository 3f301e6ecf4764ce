// Makes the backend of relayed links without a transport around it, for tests that inject faults.
#pragma once

#include <memory>
#include <string>

#include "transport/p2p/core/connection.h"
#include "transport/p2p/relay/factory.h"

namespace longhaul::transport::relay {

// `own_way` is empty in programs: the backend then waits only where WaitAt says, and carries only
// sealed links. Not empty: a way (transport/relay/ticket.h) at which the backend waits for all
// links from Start on, as other backends listen at an address. Links may then be plain.
std::unique_ptr<internal::Backend> NewBackend(const RelayedOptions& options,
                                              const std::string& own_way = "");

}  // namespace longhaul::transport::relay
