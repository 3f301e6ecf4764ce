// The store's records of runs. Plain data. An epoch is one attempt to train a run: one assignment
// of stages to worker processes (base/ids.h). After an interruption the next epoch begins.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/words.h"
#include "coordinator/state/once.h"
#include "longhaul/v1/control.pb.h"
#include "run/file/run_spec.h"
#include "run/plan/plan.h"

namespace longhaul::coordinator {

enum class RunState : uint8_t {
  kQueued,
  kPlanning,
  kPreparing,
  kRunning,
  kFinishing,
  kDone,
  kStopped,
  kFailed,
  kRecovering,
};
constexpr std::string_view ToString(RunState state) {
  return WordOf(state, {"queued", "planning", "preparing", "running", "finishing", "done",
                        "stopped", "failed", "recovering"});
}
constexpr bool HasEnded(RunState state) {
  return state == RunState::kDone || state == RunState::kStopped || state == RunState::kFailed;
}

// The number of times that a run has restarted by itself after an interruption.
struct Attempts {
  uint32_t in_a_row = 0;   // restarts since the last step that no earlier epoch had finished
  uint64_t best_step = 0;  // newest step of any epoch, at the last interruption
  std::string error;       // a stage's error that caused the last interruption; "": another cause
  friend bool operator==(const Attempts&, const Attempts&) = default;
};

inline constexpr size_t kKeptSampleRounds = 4;

// The store's record of a run: everything that a restarted coordinator needs.
struct RunRecord {
  RunId id;
  RunSpec spec;
  std::vector<v1::DataFile> data_files;
  RunState state = RunState::kQueued;
  std::string reason;           // for people: why the run is in this state
  Epoch epoch;                  // newest assigned epoch
  std::string link_secret;      // the secrets of the run's links are derived from these bytes
  std::optional<DataSet> data;  // nullopt: no plan was adopted yet
  std::optional<Plan> plan;     // plan of `epoch`; nullopt: none
  std::vector<v1::CheckpointManifest> checkpoints;  // committed, oldest first
  uint64_t step = 0;        // last step that all stages finished, or from which the run resumes
  bool stop_asked = false;  // the run ends after the current step
  // The run stops after the current step, and continues with another number of replicas.
  bool resize_asked = false;
  uint32_t replicas_wanted = 0;  // by `longhaul replicas`; 0: the run file's number
  Attempts attempts;
  int64_t submitted_unix_ms = 0, started_unix_ms = 0, ended_unix_ms = 0;  // 0: not yet
  // The newest rounds of samples, oldest first, at most kKeptSampleRounds; prompts without ids.
  std::vector<v1::SampleRound> samples = {};
  // About how much memory the run file and the names of its data take; not stored.
  uint64_t submitted_bytes = 0;
  std::string owner = {};  // name of the member that submitted the run; "": no TLS

  uint32_t ReplicasWanted() const {
    return replicas_wanted > 0 ? replicas_wanted : spec.replicas.count;
  }
};

// A run in the store that this version cannot read. Its row in the store stays as it is.
struct UnreadableRun {
  RunId id;
  std::string problem;  // a sentence without its full stop
};
struct StoredRuns {
  std::vector<RunRecord> runs;  // in the order in which they were submitted
  std::vector<UnreadableRun> unreadable;
  // For each run that has not ended: its steps since its oldest checkpoint, in order, at most the
  // newest kKeptSteps (books/step_book.h).
  std::map<RunId, std::vector<v1::StepRecord>> steps;
  std::vector<AnsweredCall> answered;  // in any order
};

}  // namespace longhaul::coordinator
