// Makes a point's result of what the coordinator and the links say of its run. Pure.
#ifndef LONGHAUL_DEPLOY_SWEEP_MEASURE_H_
#define LONGHAUL_DEPLOY_SWEEP_MEASURE_H_

#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "deploy/cluster/cluster_status.h"
#include "deploy/sweep/points.h"
#include "deploy/sweep/results.h"
#include "deploy/sweep/sweep_spec.h"
#include "longhaul/v1/control.pb.h"
#include "run/plan/plan.h"

namespace longhaul::cli {

// A point that has not run: waiting, or impossible with its reason.
PointResult Unmeasured(const SweepPoint& point, const SweepSpec& sweep);
// It ran and failed, or could not be started.
PointResult FailedPoint(const SweepPoint& point, const SweepSpec& sweep, std::string reason,
                        std::string run_id);

// Means of the stages' shares over the steps that were seen.
class StageShares {
 public:
  explicit StageShares(uint64_t warm_up) : warm_up_(warm_up) {}
  // Looks at the run; each step of a stage counts once, those of the warm-up do not.
  void Add(const v1::RunStatus& run);
  // Means over the replicas, for each stage.
  std::vector<StageResult> Means(const Assignment& assignment) const;

 private:
  struct Sums {
    uint64_t last_step = 0;
    double count = 0;
    StageResult shares;  // of all counted steps together
  };
  const uint64_t warm_up_;
  std::map<CellId, Sums> sums_;
};

// What went over the links between two looks at the cluster.
std::vector<LinkBytes> BytesBetween(const ClusterView& before, const ClusterView& after);

// A point whose run is done. `run` as GetRun has it, with its plan; `steps` all of ListSteps.
// kFailedPrecondition where there is too little to measure.
StatusOr<PointResult> MeasuredPoint(const SweepPoint& point, const SweepSpec& sweep,
                                    const v1::RunStatus& run,
                                    const std::vector<v1::StepRecord>& steps,
                                    const StageShares& shares, std::vector<LinkBytes> link_bytes);

}  // namespace longhaul::cli

#endif  // LONGHAUL_DEPLOY_SWEEP_MEASURE_H_
