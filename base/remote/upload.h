// Writes a large object to S3 in parts that are sent side by side. The object appears when the last
// step, "complete", succeeds. Otherwise the upload is aborted, so that the server does not keep
// (and charge for) its parts.
#pragma once

#include "base/remote/buckets.h"

namespace longhaul::remote {

// As Store::Write. `progress`: as of FolderChange.
StatusOr<Version> WriteInParts(const Buckets& buckets, const Tools& tools, const Address& object,
                               std::span<const std::byte> bytes, const http::Call& call,
                               const std::function<void(uint64_t bytes)>& progress = {});

// Begins an upload in parts and aborts it: an error if the server takes none here. Nothing is
// written.
Status BeginAndAbort(const Buckets& buckets, const Tools& tools, const Address& object,
                     const http::Call& call);

}  // namespace longhaul::remote
