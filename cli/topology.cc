#include "cli/topology.h"

#include <fmt/core.h>

#include <ostream>

#include "absl/strings/str_join.h"

namespace longhaul::cli {

Status CheckTopology(const RunSpec& spec, const CoordinatorAccess& access) {
  if (!spec.topology || !access.local_cluster.empty()) return absl::OkStatus();
  return FailedPrecondition(
      "the run file has a topology, which only a local cluster emulates, and the coordinator at {} "
      "(from {}) is not that of a cluster of this machine. Remove the key 'topology' to train on "
      "the links that there are, or start a cluster with `longhaul cluster up`",
      absl::StrJoin(access.addresses, ", "), access.address_source);
}

Status EmulateTopology(const Terminal& terminal, const RunSpec& spec,
                       const CoordinatorAccess& access, const LocalClusters& clusters) {
  LH_RETURN_IF_ERROR(CheckTopology(spec, access));
  if (!spec.topology) return absl::OkStatus();
  LH_RETURN_IF_ERROR(clusters.apply_topology(access.local_cluster, *spec.topology));
  terminal.err << fmt::format(
                      "the links of the local cluster '{}' are now those of the run's topology "
                      "(`longhaul cluster status`)",
                      access.local_cluster)
               << std::endl;
  return absl::OkStatus();
}

}  // namespace longhaul::cli
