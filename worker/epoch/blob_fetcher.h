// Downloads files, for example token files, from the coordinator. A file's name is its SHA-256. It
// is downloaded once, verified, and kept in a folder of the worker. A broken transfer is resumed
// where it broke. Only one call of Fetch at a time may name a file.
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

  // Downloads the file if the folder does not have it, and returns its path. Retries while the
  // coordinator is away, until `deadline` at most. Polls `cancelled`; kCancelled: it became true.
  // kDataLoss: the downloaded bytes have another hash, and were deleted.
  StatusOr<std::string> Fetch(const std::string& sha256, Deadline deadline,
                              const std::function<bool()>& cancelled);

  // Deletes the file.
  void Forget(const std::string& sha256);
  // Deletes every file in the folder, also the parts that interrupted transfers left.
  void ForgetAll();

 private:
  Status FetchRest(const std::string& sha256, const std::string& part, Deadline deadline,
                   const std::function<bool()>& cancelled);
  StubOf<v1::WorkerService> stub_;
  const std::string folder_;
};

}  // namespace longhaul::worker
