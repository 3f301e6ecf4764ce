// MustHeal: where nothing goes wrong any more, a run trains again, without any user's word.
//
// What excuses a run: it has ended; other runs have the workers, or too few are connected; the
// newest checkpoint that is whole has a file whose holder is away, or none is whole. Nothing else.
#pragma once

#include <map>
#include <string>

#include "tests/sim/coordinator/cluster.h"

namespace longhaul::coordinator::sim {

class HealChecker {
 public:
  explicit HealChecker(Cluster* cluster) : cluster_(*cluster) {}

  // Now and then.
  void Look();
  // Whether the run has finished a step since then that no epoch had finished before.
  bool HasTrainedSince(const RunId& run, MonoTime when) const;
  // Why nobody expects the run to train; "": it must.
  std::string ExcuseOf(const RunRecord& record) const;
  // The part of that about its checkpoints: what a run that has ended could go on from.
  std::string ExcuseByCheckpoints(const RunRecord& record) const;

 private:
  struct Training {
    uint64_t best_step = 0;
    MonoTime since;    // when it last had a reason not to go on, or went on
    MonoTime trained;  // when best_step grew
    Epoch waits_in;    // recovering since, though it could go on with fewer replicas
    MonoTime waits_since;
  };
  // As many as it must have to train.
  static uint64_t WorkersFor(const RunRecord& record);
  // A run that may do with fewer replicas does not wait for others.
  void LookForFewer(const RunRecord& record, Training& training);
  bool IsConnected(const std::string& worker_id) const;
  // When something last went wrong, or went on to, that those who are connected feel. Of a worker
  // that is away that is the moment in which it went.
  MonoTime LastFelt() const;

  Cluster& cluster_;
  MonoTime look_at_;
  std::map<RunId, Training> training_;
};

}  // namespace longhaul::coordinator::sim
