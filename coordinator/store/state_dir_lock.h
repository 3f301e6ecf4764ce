// Ensures one coordinator per state directory, by an advisory lock on <state-dir>/lock. The kernel
// drops the lock when the process ends in any way.
#pragma once

#include <string>
#include <utility>

#include "base/status.h"
#include "base/unique_fd.h"

namespace longhaul::coordinator {

// Held for the life of the object. Move-only.
class StateDirLock {
 public:
  // Creates the directory if needed. Never waits. kFailedPrecondition names the process that holds
  // the lock. Other errors: the system's for a directory that cannot be written.
  static StatusOr<StateDirLock> Acquire(const std::string& state_dir);

  // True if a coordinator has ever used this folder as its state directory.
  static bool IsIn(const std::string& folder);

 private:
  explicit StateDirLock(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace longhaul::coordinator
