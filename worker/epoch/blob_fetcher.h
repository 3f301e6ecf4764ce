// Downloads files, for example token files, from the coordinator. A file's name is the SHA-256 of
// its contents, as 64 hexadecimal digits. A file is downloaded once, verified, and kept in a folder
// of the worker. A broken transfer is resumed where it broke.
//
// Any thread may call Fetch, but only one call at a time may name a file.
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
  // `folder`: created if missing; used by this object alone.
  BlobFetcher(std::shared_ptr<Access> access, std::string folder);

  // Downloads the file if the folder does not have it, and returns its path. Blocks. Retries while
  // the coordinator is away. kCancelled: `cancelled`, which is polled, became true. kDataLoss: the
  // downloaded bytes have another hash, and were deleted. kUnavailable, kDeadlineExceeded: not done
  // at `deadline`. kResourceExhausted: the disk is full. Other errors: those of the coordinator.
  StatusOr<std::string> Fetch(const std::string& sha256, Deadline deadline,
                              const std::function<bool()>& cancelled);

  // Deletes the file, if it is there. Ignores errors.
  void Forget(const std::string& sha256);
  // Deletes the folder, also the parts that interrupted transfers left. No Fetch may be running.
  void ForgetAll();

 private:
  Status FetchRest(const std::string& sha256, const std::string& part, Deadline deadline,
                   const std::function<bool()>& cancelled);
  StubOf<v1::WorkerService> stub_;
  const std::string folder_;
};

}  // namespace longhaul::worker
