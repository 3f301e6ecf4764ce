// The backend itself, for tests that put faults around it.
#pragma once

#include <memory>
#include <string>

#include "transport/p2p/core/connection.h"
#include "transport/p2p/relay/factory.h"

namespace longhaul::transport::relay {

// `own_way`: where it waits from Start on, for any number of links, as backends that listen do; it
// is its address, and plain links pass there, too. Empty, as in programs: it waits where links are
// expected, and carries sealed links alone.
std::unique_ptr<internal::Backend> NewBackend(const RelayedOptions& options,
                                              const std::string& own_way = "");

}  // namespace longhaul::transport::relay
