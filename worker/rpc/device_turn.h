// One worker of a machine at a time measures on a GPU that several share: what two measure at once
// is neither's time.
#ifndef LONGHAUL_WORKER_RPC_DEVICE_TURN_H_
#define LONGHAUL_WORKER_RPC_DEVICE_TURN_H_

#include <string>

#include "absl/time/time.h"
#include "base/unique_fd.h"

namespace longhaul::worker {

// The turn of whoever comes, on any thread, until what it gives is closed, or the process ends. It
// is a lock of `device_file` (/dev/nvidia0), which other containers may not share; and workers from
// which CUDA hides some of the GPUs count others. Empty where there is no such file or it has no
// locks, or after `patience`: go on without.
UniqueFd TakeTurn(const std::string& device_file, absl::Duration patience);

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_RPC_DEVICE_TURN_H_
