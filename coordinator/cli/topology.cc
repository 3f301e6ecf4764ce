#include "coordinator/cli/topology.h"

#include <fmt/core.h>

#include <ostream>

#include "coordinator/cli/cluster/cluster.h"
#include "coordinator/cli/cluster/state_file.h"

namespace longhaul::cli {

Status CheckTopology(const RunSpec& spec, const Connection& connection) {
  if (!spec.topology || ClusterAt(connection.address)) return absl::OkStatus();
  return absl::FailedPreconditionError(fmt::format(
      "the run file has a topology, which only a local cluster emulates, and the coordinator at {} "
      "(from {}) is not that of a cluster of this machine. Remove the key 'topology' to train on "
      "the links that there are, or start a cluster with `longhaul cluster up`",
      connection.address, connection.address_source));
}

Status EmulateTopology(const Terminal& terminal, const RunSpec& spec,
                       const Connection& connection) {
  LH_RETURN_IF_ERROR(CheckTopology(spec, connection));
  if (!spec.topology) return absl::OkStatus();
  const std::string cluster = *ClusterAt(connection.address);
  LH_RETURN_IF_ERROR(ApplyTopology(cluster, *spec.topology));
  terminal.err << fmt::format(
                      "the links of the local cluster '{}' are now those of the run's topology "
                      "(`longhaul cluster status`)",
                      cluster)
               << std::endl;
  return absl::OkStatus();
}

}  // namespace longhaul::cli
