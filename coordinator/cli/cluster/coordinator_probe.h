// Asks a cluster's coordinator which workers are connected.
#ifndef LONGHAUL_COORDINATOR_CLI_CLUSTER_COORDINATOR_PROBE_H_
#define LONGHAUL_COORDINATOR_CLI_CLUSTER_COORDINATOR_PROBE_H_

#include <memory>
#include <set>
#include <string>

#include "absl/time/time.h"
#include "base/status.h"

namespace longhaul {

// One connection to a coordinator. From one thread.
class CoordinatorProbe {
 public:
  // Does not dial yet.
  CoordinatorProbe(const std::string& address, std::string token);
  ~CoordinatorProbe();

  // Names of the connected workers. kUnavailable or kDeadlineExceeded: no answer within `limit`.
  StatusOr<std::set<std::string>> ConnectedWorkers(absl::Duration limit);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace longhaul

#endif  // LONGHAUL_COORDINATOR_CLI_CLUSTER_COORDINATOR_PROBE_H_
