// Downloads files (token files) from the coordinator by content address. A file is downloaded once,
// resumed after a broken transfer, verified, and kept in the worker's state directory.
#pragma once

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

  // Gives the path of the file and downloads it first if needed. Blocks until `deadline`, or until
  // `cancelled` (polled between chunks) is true. kDataLoss: the content has another hash.
  StatusOr<std::string> Fetch(const std::string& sha256, Deadline deadline,
                              const std::function<bool()>& cancelled);

  // Deletes the file.
  void Forget(const std::string& sha256);
  // Deletes every file in the folder, leftovers of interrupted transfers included.
  void ForgetAll();

 private:
  Status FetchRest(const std::string& sha256, const std::string& part, Deadline deadline,
                   const std::function<bool()>& cancelled);
  StubOf<v1::WorkerService> stub_;
  const std::string folder_;
};

}  // namespace longhaul::worker
