// Times all communicators, in turn, at a few sizes of each operation.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "base/cuda/device.h"
#include "transport/collective/switcher/model.h"

namespace longhaul::collective::switcher {

inline constexpr std::array kOperations = {Op::kAllReduce, Op::kReduceScatter, Op::kAllGather,
                                           Op::kAllToAll};

// All ranks must call RunProbe with the same communicators, and all get the same result: one Probe
// for each dtype of `options` and each operation. A time is that of the slowest rank. Large sizes
// are left out if they would exceed options.probe_limit. `communicators`: the native one first.
// `device` null: host memory. Errors are those of the communicators and of Member::Tell.
StatusOr<std::vector<Probe>> RunProbe(Member* member,
                                      std::span<const std::shared_ptr<Communicator>> communicators,
                                      const cuda::Device* device, const Options& options,
                                      Deadline deadline);

}  // namespace longhaul::collective::switcher
