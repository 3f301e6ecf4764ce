// The local cluster that a sweep runs its points on: its own, with links as the point under way
// wants them.
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
  // Of the sweep with results in `out`: the same folder has the same cluster, so that what a sweep
  // that was killed has left is found and removed (Clear).
  SweepCluster(const Terminal& terminal, Interrupt& interrupt, const std::string& out,
               const SweepWorkers& workers);
  SweepCluster(const SweepCluster&) = delete;
  SweepCluster& operator=(const SweepCluster&) = delete;
  ~SweepCluster();  // takes it down

  const std::string& name() const { return name_; }
  // Takes down whatever there is of it.
  Status Clear();
  // Brings it up if it is not, and the links of all workers to `link`. The client lives until
  // Clear.
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
