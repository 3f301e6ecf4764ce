// Ensures that one command at a time changes a cluster.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/time/time.h"
#include "base/status.h"
#include "base/unique_fd.h"

namespace longhaul {

// Held as long as the object lives; the kernel releases it when the process dies. The lock is a
// file beside the cluster's state folder, deleted with the lock.
class ClusterLock {
 public:
  // Waits up to `patience` for another command to finish; then kFailedPrecondition naming it.
  static StatusOr<std::unique_ptr<ClusterLock>> Acquire(std::string_view cluster,
                                                        absl::Duration patience);
  ClusterLock(const ClusterLock&) = delete;
  ClusterLock& operator=(const ClusterLock&) = delete;
  ~ClusterLock();

 private:
  ClusterLock(UniqueFd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
  const UniqueFd fd_;
  const std::string path_;
};

}  // namespace longhaul
