// The measurements that a switcher starts with: read from a file, or else probed.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transport/collective/switcher/model.h"

namespace longhaul::collective::switcher {

struct Known {
  std::vector<Probe> probes;
  std::string origin;  // Switcher::origin
};

// Returns the probes from rank 0's file, or else runs the probe and lets rank 0 write the file. All
// ranks call it and get the same probes. `names`: the names of all communicators, the native one
// first. `device` null: host memory. kInvalidArgument: ranks have different communicators or
// dtypes. Other errors are those of RunProbe (probe.h).
StatusOr<Known> Learn(Member* member, std::span<const std::shared_ptr<Communicator>> communicators,
                      std::span<const std::string> names, const cuda::Device* device,
                      const Options& options, Deadline deadline);

}  // namespace longhaul::collective::switcher
