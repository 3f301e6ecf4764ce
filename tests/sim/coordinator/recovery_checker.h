// Checks the epochs (attempts to train a run) that the coordinator begins by itself after a fault:
// how many in a row, how soon, and from which checkpoint. Reports failures by World::Violate.
// Threads: one. Checkers (checkers.h) calls all methods.
#pragma once

#include <map>
#include <string>

#include "coordinator/state/state.h"
#include "tests/sim/coordinator/world.h"

namespace longhaul::coordinator::sim {

// True if workers hold stages of a run in this state.
bool HoldsStages(RunState state);

class RecoveryChecker {
 public:
  // `world` must outlive this object.
  explicit RecoveryChecker(World* world) : world_(world) {}

  // A worker's session began or ended.
  void Joined(SessionId session, const v1::Hello& hello);
  void Left(SessionId session);
  // The coordinator's process died, and forgot sessions and plans in progress.
  void Restarted();

  // For each stored transaction, call Finished for its steps, then Stored for its rows of runs,
  // then CheckCheckpoints for each step with the new row of its run. `before`: the row until now.
  // `resumed`: a user resumed the run.
  void Finished(const RunId& run, uint64_t step);
  void Stored(const RunRecord& before, const RunRecord& record, bool resumed);
  // Checks that the newest checkpoint is at most a few checkpoint intervals behind `step`.
  void CheckCheckpoints(const RunRecord& record, const v1::StepRecord& step) const;
  // Returns the newest step that any epoch of the run has finished; 0: none.
  uint64_t best_step(const RunId& run) const;

 private:
  struct Tries {
    uint64_t best_step = 0;  // newest step when in_a_row was last set to 0
    uint32_t in_a_row = 0;   // recoveries in a row without a new step
    bool first = true;       // the next epoch is no recovery, or nobody knows; it is not counted
    MonoTime interrupted;    // when workers last gave up their stages
    uint64_t finished = 0;   // newest step of the present epoch
  };
  void CountEpoch(Tries& tries, const RunRecord& before, const RunRecord& record);
  // Checks that an epoch starts from the newest checkpoint that connected workers have.
  void CheckStart(const Tries& tries, const RunRecord& before, const RunRecord& record);

  World* const world_;
  std::map<SessionId, std::string> sessions_;     // session -> worker id
  std::map<std::string, MonoTime> connected_at_;  // worker id -> when its newest session began
  std::map<std::string, SessionId> newest_;       // worker id -> newest session
  std::map<RunId, Tries> tries_;
  std::map<RunId, uint64_t> best_step_;
};

}  // namespace longhaul::coordinator::sim
