// Receives a blob from the CLI, or a copy of a shard from a worker.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <functional>
#include <string>

#include "base/status.h"
#include "base/work_threads.h"
#include "coordinator/store/blob_store.h"
#include "longhaul/v1/worker.pb.h"

namespace longhaul::coordinator {

struct UploadRules {
  // Checks whether a blob of this hash and size may be uploaded. Empty: all may.
  std::function<Status(const std::string& sha256, uint64_t bytes)> may_come = {};
  // Tells whether an existing blob need not be sent. Empty: it need not. An existing blob that is
  // sent anyway is read, hashed and replaced.
  std::function<bool(const std::string& sha256)> may_skip = {};
  // Called when all bytes have arrived with this hash, or the blob existed and need not be sent.
  // Runs on any thread, before the caller gets its answer.
  std::function<void(const std::string& sha256)> done = {};
};

// Makes the reactor of one call, which owns itself. `blobs` and `threads` must outlive the call.
// The blob is synced on one of `threads`, because that may take seconds.
grpc::ServerReadReactor<v1::UploadChunk>* StartUpload(const BlobStore* blobs, WorkThreads* threads,
                                                      UploadRules rules = {});

}  // namespace longhaul::coordinator
