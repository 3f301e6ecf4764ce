// The local cluster on which a sweep runs its points. The links are those of the current point.
#ifndef LONGHAUL_DEPLOY_SWEEP_SWEEP_CLUSTER_H_
#define LONGHAUL_DEPLOY_SWEEP_SWEEP_CLUSTER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "base/status.h"
#include "coordinator/cli/client.h"
#include "coordinator/cli/terminal.h"
#include "deploy/cluster/cluster_status.h"

namespace longhaul::cli {

struct SweepWorkers {
  uint32_t count = 0;
  std::string device = "cpu";  // ClusterUpOptions::device
};

// From the main thread.
class SweepCluster {
 public:
  // The cluster of the sweep with results in `out`. The same folder always has the same cluster, so
  // that Clear finds what a killed sweep has left.
  SweepCluster(const Terminal& terminal, Interrupt& interrupt, const std::string& out,
               const SweepWorkers& workers);
  SweepCluster(const SweepCluster&) = delete;
  SweepCluster& operator=(const SweepCluster&) = delete;
  ~SweepCluster();  // takes it down

  const std::string& name() const { return name_; }
  // Takes down whatever is left of the cluster.
  Status Clear();
  // Brings the cluster up if it is down, and sets the links of all workers to `link`. The client
  // lives until Clear.
  StatusOr<Client*> With(const LinkParameters& link);
  StatusOr<ClusterView> Observe() const;

 private:
  Status Up(const LinkParameters& link);

  const Terminal& terminal_;
  Interrupt& interrupt_;
  const std::string name_;
  const SweepWorkers workers_;
  std::optional<LinkParameters> link_;  // set: it is up
  std::unique_ptr<Client> client_;
};

}  // namespace longhaul::cli

#endif  // LONGHAUL_DEPLOY_SWEEP_SWEEP_CLUSTER_H_
