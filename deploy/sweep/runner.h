// Runs the waiting points of a sweep, one after the other, on a cluster of the sweep's own, and
// records each.
#ifndef LONGHAUL_DEPLOY_SWEEP_RUNNER_H_
#define LONGHAUL_DEPLOY_SWEEP_RUNNER_H_

#include <string>
#include <vector>

#include "base/status.h"
#include "coordinator/cli/program.h"
#include "coordinator/cli/submission.h"
#include "deploy/sweep/points.h"
#include "deploy/sweep/results_store.h"
#include "deploy/sweep/sweep_cluster.h"
#include "deploy/sweep/sweep_spec.h"

namespace longhaul::cli {

// A point with its run file and data, hashed.
struct SweepJob {
  SweepPoint point;
  Submission submission;
};

// `jobs` holds one for every waiting point of the store. A point that fails is recorded, and the
// next one runs. Returns an error if the sweep cannot go on: no cluster, or no way to write
// results; kCancelled on Ctrl-C. The cluster is taken down in any case.
Status RunPoints(Invocation& invocation, const SweepSpec& sweep, const SweepWorkers& workers,
                 const std::string& out, const std::vector<SweepJob>& jobs, ResultsStore& store);

}  // namespace longhaul::cli

#endif  // LONGHAUL_DEPLOY_SWEEP_RUNNER_H_
