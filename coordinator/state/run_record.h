// What the store keeps of a run. Plain data.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/words.h"
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

// How often a run has begun again by itself after an interruption.
struct Attempts {
  uint32_t in_a_row = 0;   // without a step that no epoch had finished before
  uint64_t best_step = 0;  // the newest that any epoch had finished at the last interruption
  std::string error;       // what a stage reported then; "": it was no stage's error
  friend bool operator==(const Attempts&, const Attempts&) = default;
};

// What the store keeps of a run: everything that a restarted coordinator needs.
struct RunRecord {
  RunId id;
  RunSpec spec;
  std::vector<v1::DataFile> data_files;
  RunState state = RunState::kQueued;
  std::string reason;
  Epoch epoch;  // newest that was ever assigned
  std::string link_secret;
  std::optional<DataSet> data;
  std::optional<Plan> plan;                         // of `epoch`
  std::vector<v1::CheckpointManifest> checkpoints;  // committed, oldest first
  uint64_t step = 0;                                // last finished by all stages
  bool stop_asked = false;                          // it ends after the step under way
  // It stops after the step under way, and goes on from there with another number of replicas.
  bool resize_asked = false;
  uint32_t replicas_wanted = 0;  // by `longhaul replicas`; 0: as many as the run file says
  Attempts attempts;
  int64_t submitted_unix_ms = 0, started_unix_ms = 0, ended_unix_ms = 0;
  std::string owner = {};  // the member that submitted it; empty: without TLS

  uint32_t ReplicasWanted() const {
    return replicas_wanted > 0 ? replicas_wanted : spec.replicas.count;
  }
};

// A run of the store that this version cannot read. Its row stays as it is.
struct UnreadableRun {
  RunId id;
  std::string problem;  // a sentence without its full stop
};
struct StoredRuns {
  std::vector<RunRecord> runs;  // in the order in which they were submitted
  std::vector<UnreadableRun> unreadable;
  // The newest steps of runs that have not ended, back to their oldest checkpoints, in order; at
  // most kKeptSteps of each.
  std::map<RunId, std::vector<v1::StepRecord>> steps;
};

}  // namespace longhaul::coordinator
