// Serialises measurements on a GPU that several workers share, because two at once would both be
// wrong.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "base/unique_fd.h"

namespace longhaul::worker {

// Waits for a lock on `device_file` (/dev/nvidia0), which is the turn. The caller has the turn
// until the result is closed or the process ends. The result is empty if there is no such file, if
// it cannot be locked, or after `patience`; then measure without a turn. Works only between workers
// that see the same file: containers may not, and workers with hidden GPUs may number them
// differently. Any thread.
UniqueFd TakeTurn(const std::string& device_file, absl::Duration patience);

}  // namespace longhaul::worker
