// One coordinator per state directory: an advisory lock on <state-dir>/lock, which the kernel drops
// when the process ends, however it ends.
#ifndef LONGHAUL_COORDINATOR_STORE_STATE_DIR_LOCK_H_
#define LONGHAUL_COORDINATOR_STORE_STATE_DIR_LOCK_H_

#include <string>
#include <utility>

#include "base/status.h"
#include "base/unique_fd.h"

namespace longhaul::coordinator {

// Held for the life of the object. Move-only.
class StateDirLock {
 public:
  // Makes the directory where it is missing. kFailedPrecondition naming the process that holds it.
  static StatusOr<StateDirLock> Acquire(const std::string& state_dir);

  // Whether a coordinator has ever had this folder as its state directory.
  static bool IsIn(const std::string& folder);

 private:
  explicit StateDirLock(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_STORE_STATE_DIR_LOCK_H_
