// The life of a run as one table. Only Moves::Move changes a run's state: Move looks up the row for
// the state and the trigger, and does the row's action. A move without a row is a bug. A cell is
// one stage of one replica.
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
  kEndAsked,   // all stages must stop after the current step: `stop`, or a new number of replicas
  kStopAsked,  // `stop --now`, or `stop` of a run that does not train
  kFailure,
  kInterrupted,  // a loss or an error that the run may recover from
  kResized,      // all stages stopped, because the number of replicas changes
  kReplaced,     // every cell has a worker again
  kNobodyThere,  // the run cannot continue in place, and must be planned anew
  kCoordinatorRestarted,
  kResumed,
};
constexpr std::string_view ToString(Trigger trigger) {
  return WordOf(trigger,
                {"workers free", "plan made", "all ready", "a stage finished", "all finished",
                 "all stopped", "end asked", "stop asked", "failure", "interrupted", "resized",
                 "replaced", "nobody there", "coordinator restarted", "resumed"});
}

// The action after a change of state. Capitalized words are messages of v1::WorkerCommand.
enum class Action : uint8_t {
  kNone,
  kMeasure,          // command::PrepareData; Measure to workers without known layer times
  kAssign,           // Assign to each stage
  kStart,            // Start to each stage
  kStop,             // StopAfterStep to the first stage of each replica
  kAbort,            // Abort to each connected worker that the run reserves
  kAbortAndRelease,  // as kAbort; then the run reserves no worker any more
};
constexpr std::string_view ToString(Action action) {
  return WordOf(action, {"", "reserve, prepare data, measure", "assign", "start",
                         "stop the first stage", "abort", "abort, release workers"});
}

struct Transition {
  RunState from;
  RunState to;
  Trigger trigger;
  // `condition` and `why` are for people.
  std::string_view condition;
  Action action;
  std::string_view why;
};

std::span<const Transition> Transitions();
// Returns the only row with this state and trigger; nullptr: there is none.
const Transition* FindTransition(RunState from, Trigger trigger);

// A Mermaid state diagram of the table.
std::string DumpTransitions();

}  // namespace longhaul::coordinator
