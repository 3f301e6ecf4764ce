#include "coordinator/state/ledger/transitions.h"

#include <fmt/format.h>

#include <array>

namespace longhaul::coordinator {
namespace {

using enum RunState;

constexpr std::string_view kEndNow =
    "measurements and assignments are worth nothing to a run that "
    "has not begun";

constexpr std::array kTransitions = {
    // clang-format off
    Transition{kQueued, kPlanning, Trigger::kWorkersFree,
               "as many free workers as the run needs; on resume all shards within reach",
               Action::kMeasure, "a plan needs the data's size and measured layer times"},
    Transition{kPlanning, kPreparing, Trigger::kPlanMade,
               "data set, layer times and links are in, a plan fits; on resume its shards are whole and in place",
               Action::kAssign,
               "the plan is stored before any worker hears of it"},
    Transition{kPreparing, kRunning, Trigger::kAllReady, "every stage is ready", Action::kStart,
               "no stage may send before all links are open"},
    Transition{kRunning, kFinishing, Trigger::kStageFinished, "the first stage to end has ended",
               Action::kNone, "the pipeline drains; nothing more can be asked of it"},
    Transition{kRunning, kFinishing, Trigger::kEndAsked, "`stop`, another number of replicas, or a worker is leaving", Action::kStop,
               "what a user was promised is stored: a restarted coordinator repeats the word"},
    Transition{kFinishing, kDone, Trigger::kAllFinished, "every stage ended at the last step",
               Action::kAbortAndRelease, "only now does no neighbour need their links any more"},
    Transition{kFinishing, kStopped, Trigger::kAllStopped, "every stage ended, early, by `stop`",
               Action::kAbortAndRelease, "as done, but it can be resumed"},

    Transition{kQueued, kStopped, Trigger::kStopAsked, "", Action::kAbortAndRelease, kEndNow},
    Transition{kPlanning, kStopped, Trigger::kStopAsked, "", Action::kAbortAndRelease, kEndNow},
    Transition{kPreparing, kStopped, Trigger::kStopAsked, "", Action::kAbortAndRelease, kEndNow},
    Transition{kRunning, kStopped, Trigger::kStopAsked, "`--now`",
               Action::kAbortAndRelease, "the user gives up the steps since the newest checkpoint"},
    Transition{kFinishing, kStopped, Trigger::kStopAsked, "`--now`", Action::kAbortAndRelease,
               "as for a running one"},

    Transition{kPlanning, kFailed, Trigger::kFailure,
               "worker lost, measuring or data preparation failed, no plan fits",
               Action::kAbortAndRelease, "one sentence says what a person has to change"},
    Transition{kPreparing, kFailed, Trigger::kFailure, "worker lost or a stage reports an error",
               Action::kAbortAndRelease, "an epoch needs every one of its workers"},
    Transition{kRunning, kFailed, Trigger::kFailure,
               "worker lost, a stage reports an error, loss or norm not finite, a repeated step differs",
               Action::kAbortAndRelease, "an epoch needs every one of its workers"},
    Transition{kFinishing, kFailed, Trigger::kFailure,
               "a stage that has not ended is lost or reports an error, a repeated step differs",
               Action::kAbortAndRelease,
               "an epoch needs every one of its workers"},

    Transition{kPlanning, kQueued, Trigger::kCoordinatorRestarted, "", Action::kNone,
               "measurements died with the old process and nothing was assigned"},
    Transition{kPlanning, kQueued, Trigger::kInterrupted, "a worker was lost", Action::kAbortAndRelease,
               "planning anew takes seconds, and another worker may be there"},
    Transition{kPreparing, kRecovering, Trigger::kInterrupted, "worker lost or a stage reports an error",
               Action::kAbort, "the others keep their models for the next epoch"},
    Transition{kRunning, kRecovering, Trigger::kInterrupted, "worker or link lost, or a stage reports an error",
               Action::kAbort, "the others keep their models for the next epoch"},
    Transition{kFinishing, kRecovering, Trigger::kInterrupted, "as for a running one, unless a stop was asked",
               Action::kAbort, "the others keep their models for the next epoch"},
    Transition{kFinishing, kRecovering, Trigger::kResized, "every stage ended, early, for another number of replicas or another worker",
               Action::kAbort, "the others keep their models for the next epoch"},
    Transition{kRecovering, kPreparing, Trigger::kReplaced,
               "every cell has a worker, of as many replicas as can be whole, with its shards", Action::kAssign,
               "next epoch of the same split: nothing to measure, nothing to search"},
    Transition{kRecovering, kQueued, Trigger::kNobodyThere, "a worker stays away, or the first attempt was in vain",
               Action::kAbortAndRelease, "from there it is planned anew, with whoever is there"},
    Transition{kRecovering, kStopped, Trigger::kStopAsked, "", Action::kAbortAndRelease, kEndNow},
    Transition{kRecovering, kFailed, Trigger::kFailure, "no checkpoint is whole",
               Action::kAbortAndRelease, "one sentence says what a person has to change"},

    Transition{kDone, kQueued, Trigger::kResumed, "more steps; same model, data, seeds and batch",
               Action::kNone, "same id, next epoch, from the newest whole checkpoint or the one that was asked for"},
    Transition{kFailed, kQueued, Trigger::kResumed, "same model, data, seeds and batch",
               Action::kNone, "same id, next epoch, from the newest whole checkpoint or the one that was asked for"},
    Transition{kStopped, kQueued, Trigger::kResumed, "same model, data, seeds and batch",
               Action::kNone, "same id, next epoch, from the newest whole checkpoint or the one that was asked for"},
    // clang-format on
};

}  // namespace

std::span<const Transition> Transitions() {
  return kTransitions;
}

const Transition* FindTransition(RunState from, Trigger trigger) {
  for (const Transition& row : kTransitions) {
    if (row.from == from && row.trigger == trigger) return &row;
  }
  return nullptr;
}

std::string DumpTransitions() {
  std::string text = "stateDiagram-v2\n  [*] --> queued : submitted\n";
  for (const Transition& row : kTransitions) {
    text += fmt::format("  {} --> {} : {}", ToString(row.from), ToString(row.to),
                        ToString(row.trigger));
    if (!row.condition.empty()) {
      text += fmt::format(" [{}]", row.condition);
    }
    if (row.action != Action::kNone) {
      text += fmt::format(" / {}", ToString(row.action));
    }
    text += fmt::format("\n    %% {}\n", row.why);
  }
  for (const RunState state : {kDone, kStopped, kFailed}) {
    text += fmt::format("  {} --> [*]\n", ToString(state));
  }
  return text;
}

}  // namespace longhaul::coordinator
