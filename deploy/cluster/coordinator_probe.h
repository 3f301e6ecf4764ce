// Asks a cluster's coordinator which workers are connected.
#pragma once

#include <sys/types.h>

#include <memory>
#include <set>
#include <utility>

#include "absl/time/time.h"
#include "base/status.h"
#include "deploy/cluster/state_file.h"

namespace longhaul {

// Names with process ids. By name alone, a worker that was just killed, and whose session the
// coordinator still has, could not be told from its successor.
using ConnectedWorkers = std::set<std::pair<std::string, pid_t>>;

// One connection to a coordinator. Threads: one.
class CoordinatorProbe {
 public:
  // Does not dial yet.
  explicit CoordinatorProbe(const ClusterState& state);
  ~CoordinatorProbe();

  // kUnavailable or kDeadlineExceeded: no answer within `limit`.
  StatusOr<ConnectedWorkers> Connected(absl::Duration limit);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace longhaul
