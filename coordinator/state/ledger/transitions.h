// The life of a run as one table. Only Moves::Move changes a run's state, and it does the row's
// action; a move without a row is a bug.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/words.h"
#include "coordinator/state/run_record.h"

namespace longhaul::coordinator {

enum class Trigger : uint8_t {
  kWorkersFree,
  kPlanMade,
  kAllReady,
  kStageFinished,
  kAllFinished,
  kAllStopped,
  kEndAsked,   // `stop`: after the current step
  kStopAsked,  // `stop --now`, or a stop before the first step
  kFailure,
  kInterrupted,  // a loss or an error that the run may recover from
  kResized,      // stopped to change the number of replicas
  kReplaced,     // every cell has a worker again
  kNobodyThere,  // a cell has no worker, so the run must be planned anew
  kCoordinatorRestarted,
  kResumed,
};
constexpr std::string_view ToString(Trigger trigger) {
  return WordOf(trigger,
                {"workers free", "plan made", "all ready", "a stage finished", "all finished",
                 "all stopped", "end asked", "stop asked", "failure", "interrupted", "resized",
                 "replaced", "nobody there", "coordinator restarted", "resumed"});
}

// The action after a change of state.
enum class Action : uint8_t {
  kNone,
  kMeasure,          // reserve the workers; PrepareData; Measure to each
  kAssign,           // Assign to each stage
  kStart,            // Start to each stage
  kStop,             // StopAfterStep to the first stage
  kAbort,            // Abort to each reserved worker that is connected; they stay reserved
  kAbortAndRelease,  // Abort to each reserved worker that is connected; the workers become free
};
constexpr std::string_view ToString(Action action) {
  return WordOf(action, {"", "reserve, prepare data, measure", "assign", "start",
                         "stop the first stage", "abort", "abort, release workers"});
}

struct Transition {
  RunState from;
  RunState to;
  Trigger trigger;
  std::string_view condition;
  Action action;
  std::string_view why;
};

std::span<const Transition> Transitions();
// (from, trigger) names at most one row; nullptr: the trigger is ignored in that state.
const Transition* FindTransition(RunState from, Trigger trigger);

// A Mermaid state diagram of the table.
std::string DumpTransitions();

}  // namespace longhaul::coordinator
