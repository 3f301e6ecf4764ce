// Moves runs from state to state. Each move is a row of one table (transitions.h). Components that
// keep data of runs listen: at each move they drop the data of the run's former state, and do their
// part of the row's action.
#pragma once

#include <string>
#include <vector>

#include "coordinator/state/ledger/ledger.h"
#include "coordinator/state/ledger/transitions.h"

namespace longhaul::coordinator {

class MoveListener {
 public:
  virtual ~MoveListener() = default;
  // The run has just come to the state `row.to`. The move is not logged yet.
  virtual void OnMove(Run& run, const Transition& row) = 0;
  // Does this component's part of the row's action. The move has been logged.
  virtual void Act(Run& /*run*/, Action /*action*/) {}
  // The run is removed: drops its data.
  virtual void OnRemove(const RunId& /*id*/) {}
};

// Returns whether the run leaves its epoch by this row but may train on, so that reports of the
// epoch no longer count. False for rows that end the run: its epoch ends when the run is resumed.
bool EndsEpoch(const Transition& row);

class Moves {
 public:
  explicit Moves(Ledger& ledger) : ledger_(ledger) {}
  // The listener outlives this. Listeners are called in the order in which they were added.
  void Add(MoveListener* listener) { listeners_.push_back(listener); }

  // Changes a run's state, does the row's action and logs an event. No other code changes the
  // state. Aborts the process if the table has no row for `trigger` in this state. `reason` is what
  // `longhaul status` shows from now on. `text` is the event's text; "": `reason`.
  void Move(Run& run, Trigger trigger, const std::string& reason = "",
            const std::string& text = "");
  // Removes a run, which must have ended.
  void Remove(const RunId& id);

 private:
  void Abort(const Run& run, const std::string& reason);
  void Release(const Run& run);

  Ledger& ledger_;
  std::vector<MoveListener*> listeners_;
};

}  // namespace longhaul::coordinator
