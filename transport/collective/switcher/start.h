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

// All ranks call it; rank 0 reads and writes the file. `names`: the names of all communicators, the
// native one first. kInvalidArgument: ranks have different communicators or options.
StatusOr<Known> Learn(Member* member, std::span<const std::shared_ptr<Communicator>> communicators,
                      std::span<const std::string> names, const cuda::Device* device,
                      const Options& options, Deadline deadline);

}  // namespace longhaul::collective::switcher
