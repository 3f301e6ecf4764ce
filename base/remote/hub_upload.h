// Writes a file to a hub as a commit of one file. Large files go to the hub's store first, by Git
// LFS (https://github.com/git-lfs/git-lfs/blob/main/docs/api/batch.md) with the hub's own way of
// parts; the commit then names their SHA-256.
#pragma once

#include <functional>
#include <string>

#include "base/remote/place.h"

namespace longhaul::remote {

// Makes a request to the hub with the user's token.
using AskHub = std::function<http::Request(std::string method, std::string url)>;

// Returns the commit. The object's revision is the branch that gets the commit.
StatusOr<std::string> WriteToHub(const Tools& tools, const AskHub& ask, const Address& object,
                                 std::span<const std::byte> bytes, const http::Call& call);

}  // namespace longhaul::remote
