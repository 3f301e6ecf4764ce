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

// Names and process ids of workers. The ids are needed because the coordinator may still have the
// session of a worker that was just killed, and the next worker process has the same name.
using ConnectedWorkers = std::set<std::pair<std::string, pid_t>>;

// One connection to a coordinator. Threads: one at a time.
class CoordinatorProbe {
 public:
  // Copies the values that it needs from `state`. Does not dial yet.
  explicit CoordinatorProbe(const ClusterState& state);
  ~CoordinatorProbe();

  // Returns the workers that are connected. Blocks for at most `limit`. Until a call has joined the
  // cluster as a user, each call first tries to join, for at most max(2 s, limit) more.
  // kUnavailable or kDeadlineExceeded: no answer in time, try again. Other errors are those of
  // Access::Open (proto/member/access.h).
  StatusOr<ConnectedWorkers> Connected(absl::Duration limit);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace longhaul
