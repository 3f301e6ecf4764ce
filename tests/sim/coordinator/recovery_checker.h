// What must hold of the epochs that a run begins by itself: how many in a row, how soon, and from
// which checkpoint.
#pragma once

#include <map>
#include <string>

#include "coordinator/state/state.h"
#include "tests/sim/coordinator/world.h"

namespace longhaul::coordinator::sim {

// Workers have stages of the run.
bool HoldsStages(RunState state);

class RecoveryChecker {
 public:
  explicit RecoveryChecker(World* world) : world_(world) {}

  void Joined(SessionId session, const v1::Hello& hello);
  void Left(SessionId session);
  // The process of the coordinator died: it does not remember what it tried.
  void Restarted();

  // One transaction: the steps, then the rows, then each step with its run's row. `resumed`: by
  // a user.
  void Finished(const RunId& run, uint64_t step);
  void Stored(const RunRecord& before, const RunRecord& record, bool resumed);
  // Checkpoints keep up with the steps.
  void CheckCheckpoints(const RunRecord& record, const v1::StepRecord& step) const;
  // Facts of any epoch.
  uint64_t best_step(const RunId& run) const;

 private:
  struct Tries {
    uint64_t best_step = 0;  // when it last counted
    uint32_t in_a_row = 0;   // epochs without a new step
    bool first = true;       // the next epoch is not its own doing
    MonoTime interrupted;    // when its stages were given up
    uint64_t finished = 0;   // newest step of the present epoch
  };
  void CountEpoch(Tries& tries, const RunRecord& before, const RunRecord& record);
  // It goes back no further than it must.
  void CheckStart(const Tries& tries, const RunRecord& before, const RunRecord& record);

  World* const world_;
  std::map<SessionId, std::string> sessions_;     // -> worker id
  std::map<std::string, MonoTime> connected_at_;  // by worker id: since when, with its session
  std::map<std::string, SessionId> newest_;       // by worker id
  std::map<RunId, Tries> tries_;
  std::map<RunId, uint64_t> best_step_;
};

}  // namespace longhaul::coordinator::sim
