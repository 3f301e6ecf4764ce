// A blob on its way from the CLI, or a copy of a shard from a worker.
#ifndef LONGHAUL_COORDINATOR_RPC_UPLOAD_H_
#define LONGHAUL_COORDINATOR_RPC_UPLOAD_H_

#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <functional>
#include <string>

#include "base/status.h"
#include "coordinator/rpc/work_threads.h"
#include "coordinator/store/blob_store.h"
#include "longhaul/v1/worker.pb.h"

namespace longhaul::coordinator {

struct UploadRules {
  // Whether a blob of this hash and size may come. Empty: all may.
  std::function<Status(const std::string& sha256, uint64_t bytes)> may_come = {};
  // Whether a blob that is there need not be sent. Empty: it need not. One that is sent in spite of
  // that is read, hashed and put in its own place.
  std::function<bool(const std::string& sha256)> may_skip = {};
  // All bytes have come and have this hash, or they were there and need not be sent. From any
  // thread, before the caller hears of it.
  std::function<void(const std::string& sha256)> done = {};
};

// The reactor of one call; it owns itself. `blobs` and `threads` must outlive the call: a whole
// blob is synced on one of `threads`, since that may take seconds.
grpc::ServerReadReactor<v1::UploadChunk>* StartUpload(const BlobStore* blobs, WorkThreads* threads,
                                                      UploadRules rules = {});

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_RPC_UPLOAD_H_
