// Writes files to a hub as one commit. Large files go to the hub's store first, by Git LFS
// (https://github.com/git-lfs/git-lfs/blob/main/docs/api/batch.md) with the hub's own way of parts;
// the commit then names their SHA-256.
#pragma once

#include <functional>
#include <string>

#include "base/remote/place.h"

namespace longhaul::remote {

// Makes a request to the hub with the user's token.
using AskHub = std::function<http::Request(std::string method, std::string url)>;

// Returns the commit. `at`: for messages; its revision is the branch that gets the commit, and its
// path does not matter. Paths in `change` are those in the repository.
StatusOr<std::string> WriteToHub(const Tools& tools, const AskHub& ask, const Address& at,
                                 const FolderChange& change, const http::Call& call);

// As Store::PrepareWrites. Also makes a branch that is missing.
StatusOr<bool> PrepareHub(const Tools& tools, const AskHub& ask, const Address& folder,
                          const http::Call& call);

}  // namespace longhaul::remote
