// Serialises measurements on a GPU that several workers share. Two measurements at once would both
// be wrong.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "base/unique_fd.h"

namespace longhaul::worker {

// Waits for the turn and keeps it until the result is closed or the process ends. Any thread. The
// turn is a lock of `device_file` (/dev/nvidia0). Other containers may have another file, and
// workers with hidden GPUs may number them differently. Empty if there is no such file, if it
// cannot be locked, or after `patience`: then measure without a turn.
UniqueFd TakeTurn(const std::string& device_file, absl::Duration patience);

}  // namespace longhaul::worker
