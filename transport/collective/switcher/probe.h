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

// All ranks call it and get the same numbers: for each call the time of the slowest rank.
// `communicators`: the native one first. `device` null: host memory.
StatusOr<std::vector<Probe>> RunProbe(Member* member,
                                      std::span<const std::shared_ptr<Communicator>> communicators,
                                      const cuda::Device* device, const Options& options,
                                      Deadline deadline);

}  // namespace longhaul::collective::switcher
