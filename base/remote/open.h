// Opens a store for an address that a person has named: a user of the CLI, or an admin by a run
// file of a hook. Credentials and servers are those of this process's environment (settings.h).
#pragma once

#include <memory>

#include "base/remote/address.h"
#include "base/remote/store.h"
#include "base/status.h"

namespace longhaul::remote {

// Returns a store that may ask the usual services and those that the environment names. It may ask
// the host of a web address, and follow redirects from there to public hosts. It follows a hub that
// the environment names everywhere. `attempts`: as of http::Patience. Errors: those of FindSettings
// and of http::ParseUrl.
StatusOr<std::unique_ptr<Store>> OpenForPerson(const Address& address, int attempts);

}  // namespace longhaul::remote
