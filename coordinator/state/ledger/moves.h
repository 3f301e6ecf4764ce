// A run moves from state to state only by one table (transitions.h). Components that keep state of
// runs listen: each drops the data of the run's former state, and does its part of the row's
// action.
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
  // Does this component's part of the row's action. The event has been logged.
  virtual void Act(Run& /*run*/, Action /*action*/) {}
  // The run is removed, with all its data.
  virtual void OnRemove(const RunId& /*id*/) {}
};

// Whether the row ends the run's epoch, so that its reports no longer count.
bool EndsEpoch(const Transition& row);

class Moves {
 public:
  explicit Moves(Ledger& ledger) : ledger_(ledger) {}
  // The listener outlives this. Listeners are called in the order in which they were added.
  void Add(MoveListener* listener) { listeners_.push_back(listener); }

  // Changes a run's state; no other code does. CHECKs that the table has the row and does its
  // action. `reason` is the text of `status` from now on, `text` is added to the event.
  void Move(Run& run, Trigger trigger, const std::string& reason = "",
            const std::string& text = "");
  // Removes an ended run.
  void Remove(const RunId& id);

 private:
  void Abort(const Run& run, const std::string& reason);
  void Release(const Run& run);

  Ledger& ledger_;
  std::vector<MoveListener*> listeners_;
};

}  // namespace longhaul::coordinator
