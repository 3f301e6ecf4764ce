// A run moves from state to state along one table (transitions.h), and nowhere else. Components
// that keep state of runs listen: each drops the state that belonged to the former state of the
// run, and does its part of the row's action.
#pragma once

#include <string>
#include <vector>

#include "coordinator/state/ledger/ledger.h"
#include "coordinator/state/ledger/transitions.h"

namespace longhaul::coordinator {

class MoveListener {
 public:
  virtual ~MoveListener() = default;
  // The run has just come to the state `row.to`. The event is not logged yet.
  virtual void OnMove(Run& run, const Transition& row) = 0;
  // The event is logged; what the row's action wants of this component happens now.
  virtual void Act(Run& /*run*/, Action /*action*/) {}
  // The run is removed, with all that is known of it.
  virtual void OnRemove(const RunId& /*id*/) {}
};

// Whether the epoch of the run is over, and what was reported of it counts no more.
bool EndsEpoch(const Transition& row);

class Moves {
 public:
  explicit Moves(Ledger& ledger) : ledger_(ledger) {}
  // The listener outlives this. Listeners are called in the order in which they were added.
  void Add(MoveListener* listener) { listeners_.push_back(listener); }

  // The only place where a run's state changes. CHECKs that the table has the row and does its
  // action. `reason` is what `status` says from now on, `text` what the event adds to it.
  void Move(Run& run, Trigger trigger, const std::string& reason = "",
            const std::string& text = "");
  // The run has ended; it is unknown from now on.
  void Remove(const RunId& id);

 private:
  void Abort(const Run& run, const std::string& reason);
  void Release(const Run& run);

  Ledger& ledger_;
  std::vector<MoveListener*> listeners_;
};

}  // namespace longhaul::coordinator
