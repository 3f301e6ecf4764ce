// Moves runs from state to state. Each move is a row of one table (transitions.h). Components that
// keep data of runs are listeners: at each move they drop the data of the run's former state, and
// do their part of the row's action.
#pragma once

#include <string>
#include <vector>

#include "coordinator/state/ledger/ledger.h"
#include "coordinator/state/ledger/transitions.h"

namespace longhaul::coordinator {

class MoveListener {
 public:
  virtual ~MoveListener() = default;
  // Called when the run has just come to the state `row.to`, and before the move is logged. Drops
  // this component's data of the former state.
  virtual void OnMove(Run& run, const Transition& row) = 0;
  // Called after the move was logged. Does this component's part of the row's action.
  virtual void Act(Run& /*run*/, Action /*action*/) {}
  // Called when the run is removed. Drops the run's data.
  virtual void OnRemove(const RunId& /*id*/) {}
};

// Returns whether this row ends the run's epoch (attempt), so that reports of the epoch no longer
// count. True for rows after which the run may train in another epoch. False for rows that end the
// run, because the epoch then ends only when the run is resumed.
bool EndsEpoch(const Transition& row);

class Moves {
 public:
  explicit Moves(Ledger& ledger) : ledger_(ledger) {}
  // Adds a listener, which must outlive this object. Listeners are called in the order in which
  // they were added.
  void Add(MoveListener* listener) { listeners_.push_back(listener); }

  // Changes a run's state by the table's row for `trigger`, logs an event, and does the row's
  // action. No other code changes the state. Aborts the process if the table has no such row.
  // `reason` is what `longhaul status` shows from now on. `text`: the event's text; "": `reason`.
  void Move(Run& run, Trigger trigger, const std::string& reason = "",
            const std::string& text = "");
  // Removes a run, which must have ended, from memory. The caller also removes it from the store.
  void Remove(const RunId& id);

 private:
  void Abort(const Run& run, const std::string& reason);
  void Release(const Run& run);

  Ledger& ledger_;
  std::vector<MoveListener*> listeners_;
};

}  // namespace longhaul::coordinator
