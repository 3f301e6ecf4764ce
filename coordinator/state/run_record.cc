#include "coordinator/state/run_record.h"

namespace longhaul::coordinator {

std::string_view ToString(RunState state) {
  switch (state) {
    case RunState::kQueued:
      return "queued";
    case RunState::kPlanning:
      return "planning";
    case RunState::kPreparing:
      return "preparing";
    case RunState::kRunning:
      return "running";
    case RunState::kFinishing:
      return "finishing";
    case RunState::kDone:
      return "done";
    case RunState::kStopped:
      return "stopped";
    case RunState::kFailed:
      return "failed";
    case RunState::kRecovering:
      return "recovering";
  }
  return "?";
}

bool HasEnded(RunState state) {
  return state == RunState::kDone || state == RunState::kStopped || state == RunState::kFailed;
}

}  // namespace longhaul::coordinator
