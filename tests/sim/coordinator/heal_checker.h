// Checks that runs heal: some time after the last fault, every run must train again without a
// user's help.
//
// A run is excused only if it has ended, if too few workers are connected and free, or if no
// checkpoint can be used. A checkpoint cannot be used if a file is damaged, or is only on workers
// that are away. A run that has ended or that a user resumes needs its newest checkpoint. Threads:
// one.
#pragma once

#include <map>
#include <string>

#include "tests/sim/coordinator/cluster.h"

namespace longhaul::coordinator::sim {

class HealChecker {
 public:
  // `cluster` must outlive this object.
  explicit HealChecker(Cluster* cluster) : cluster_(*cluster) {}

  // Checks all runs. Call it often; looks at most once a virtual second. Reports a run that does
  // not train in time by World::Violate.
  void Look();
  // True if the run has finished a new step after `when`: one that no earlier epoch (attempt of the
  // run) had finished.
  bool HasTrainedSince(const RunId& run, MonoTime when) const;
  // Returns why the run need not train; "": it must train. The coordinator must be running.
  std::string ExcuseOf(const RunRecord& record) const;
  // Returns why the run cannot use its checkpoints; "": it can, or it has none and begins at step
  // 0. Works for runs that have ended, too.
  std::string ExcuseByCheckpoints(const RunRecord& record) const;

 private:
  struct Training {
    uint64_t best_step = 0;
    MonoTime since;    // since when the run has had no excuse, no fault and no new step
    MonoTime trained;  // when best_step grew
    // The run recovers in this epoch since `waits_since`, although it could train on with fewer
    // replicas.
    Epoch waits_in;
    MonoTime waits_since;
  };
  // Returns how many workers the run needs to train.
  static uint64_t WorkersFor(const RunRecord& record);
  // Checks that a run which may train with fewer replicas does not wait for lost ones.
  void LookForFewer(const RunRecord& record, Training& training);
  bool IsConnected(const std::string& worker_id) const;
  // Returns when the last fault ended that connected workers can notice. A fault of a worker that
  // is away counts from its beginning.
  MonoTime LastFelt() const;

  Cluster& cluster_;
  MonoTime look_at_;
  std::map<RunId, Training> training_;
};

}  // namespace longhaul::coordinator::sim
