// Lets several workers that share a GPU measure one after the other, because two measurements at
// once would both be wrong.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "base/unique_fd.h"

namespace longhaul::worker {

// Waits until this worker holds an exclusive lock on `device_file`, such as "/dev/nvidia0". The
// lock is held until the result is closed or the process ends. The result is empty if there is no
// such file, if it cannot be locked, or after `patience`; then measure without a lock. Works only
// between workers that see the same file under the same name; workers in containers, or with hidden
// GPUs, may not. Any thread.
UniqueFd TakeTurn(const std::string& device_file, absl::Duration patience);

}  // namespace longhaul::worker
