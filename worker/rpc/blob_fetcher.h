// Files that the coordinator hands out by content address (token files): fetched once, kept in the
// worker's state directory, resumed where a transfer broke, verified.
#ifndef LONGHAUL_WORKER_RPC_BLOB_FETCHER_H_
#define LONGHAUL_WORKER_RPC_BLOB_FETCHER_H_

#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "longhaul/v1/worker.grpc.pb.h"
#include "proto/member/access.h"

namespace longhaul::worker {

class BlobFetcher {
 public:
  BlobFetcher(std::shared_ptr<Access> access, std::string folder);

  // The path of the file. Blocks; gives up at `deadline` or when `cancelled` says so (asked between
  // chunks). kDataLoss when what came is not what the address says.
  StatusOr<std::string> Fetch(const std::string& sha256, Deadline deadline,
                              const std::function<bool()>& cancelled);

  // Deletes the file.
  void Forget(const std::string& sha256);
  // Deletes every file in the folder, also what an interrupted transfer left.
  void ForgetAll();

 private:
  Status FetchRest(const std::string& sha256, const std::string& part, Deadline deadline,
                   const std::function<bool()>& cancelled);
  StubOf<v1::WorkerService> stub_;
  const std::string folder_;
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_RPC_BLOB_FETCHER_H_
