// Ensures that only one command at a time changes a cluster.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/time/time.h"
#include "base/status.h"
#include "base/unique_fd.h"

namespace longhaul {

// The lock is held as long as the object lives; if the process dies, the kernel releases it. The
// lock is a file beside the cluster's state folder; the destructor deletes the file.
class ClusterLock {
 public:
  // Waits up to `patience` for another command that holds the lock; 0: does not wait.
  // kFailedPrecondition: the other command still holds the lock; the message has its process id.
  // Other errors: by errno, or those of MakePrivateFolder (state_file.h).
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
