// Finds the model that model.from names: a folder of this machine, or an address. Only addresses
// make requests, with the credentials of the user's environment (base/remote/settings.h).
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/remote/address.h"
#include "base/remote/store.h"
#include "base/status.h"
#include "run/published/weights.h"

namespace longhaul::cli {

// Returns a store that may ask the usual services and those that the environment names. It may ask
// the host of a web address, and follow redirects from there to public hosts. It follows a hub that
// the environment names everywhere.
StatusOr<std::unique_ptr<remote::Store>> OpenStore(const remote::Address& address);

// Returns `path`, which may be relative to `folder`, as workers get it: absolute, and without ".."
// where that names the same file, because workers compare it with the folders that they may read.
std::string AbsolutePath(const std::string& path, const std::string& folder);

// Checks that `from`, which became the folder `path`, was not meant as a name on the Hugging Face
// Hub, ORG/NAME. kNotFound: it looks like one, and there is no such folder; the message says what
// to write. `what`: "model" or "data set". `below`: between hf:// and the name.
Status CheckIsNoHubName(const std::string& from, const std::string& path, std::string_view what,
                        std::string_view below);

struct ModelSource {
  // What workers get as model.from: an absolute path, or an address. That of a hub has the commit.
  std::string from;
  published::Weights weights;  // without hashes
};

// `from`: an address, or a path relative to `folder`. Errors: those of published::ReadFolder, of
// FindSettings and of the store.
StatusOr<ModelSource> FindModelSource(const std::string& from, const std::string& folder);

}  // namespace longhaul::cli
