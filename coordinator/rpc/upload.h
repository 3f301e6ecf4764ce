// Receives a blob from the CLI, or a copy of a shard from a worker.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <functional>
#include <string>

#include "base/status.h"
#include "coordinator/rpc/places.h"
#include "coordinator/rpc/shell.h"
#include "coordinator/store/blob_store.h"
#include "longhaul/v1/worker.pb.h"

namespace longhaul::coordinator {

// Any thread may run these functions. They must be callable until the call has ended.
struct UploadRules {
  // That of the call's caller.
  Place place = {};
  // Checks whether a blob of this hash and size may be uploaded; an error ends the call with this
  // error. Empty: every blob may.
  std::function<Status(const std::string& sha256, uint64_t bytes)> may_come = {};
  // Tells whether the sender may skip the bytes of a blob that is stored already. Empty: it may. If
  // the bytes are sent anyway, they are hashed and replace the stored blob.
  std::function<bool(const std::string& sha256)> may_skip = {};
  // Called once the blob is stored, also if the bytes were skipped. Runs on any thread, before the
  // sender gets its answer.
  std::function<void(const std::string& sha256, uint64_t bytes)> done = {};
};

// Makes the reactor of one call; it deletes itself. `blobs` and `shell` must outlive the call. The
// blob is synced on one of the shell's threads, because that may take seconds. An upload of which
// too little comes (MemberLimits::idle_upload) ends with kDeadlineExceeded, and leaves nothing.
grpc::ServerReadReactor<v1::UploadChunk>* StartUpload(const BlobStore* blobs, Shell* shell,
                                                      UploadRules rules = {});

}  // namespace longhaul::coordinator
