// The measurements that a switcher starts with, from a file or from a probe.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transport/collective/switcher/model.h"

namespace longhaul::collective::switcher {

struct Known {
  std::vector<Probe> probes;
  std::string origin;
};

// All ranks call it. `names`: of all communicators, the native one first.
StatusOr<Known> Learn(Member* member, std::span<const std::shared_ptr<Communicator>> communicators,
                      std::span<const std::string> names, const cuda::Device* device,
                      const Options& options, Deadline deadline);

}  // namespace longhaul::collective::switcher
