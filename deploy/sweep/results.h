// The results of a sweep so far, and their forms on disk: results.json (docs/design/formats.md) and
// results.csv, one row a point. Plain data; pure.
#ifndef LONGHAUL_DEPLOY_SWEEP_RESULTS_H_
#define LONGHAUL_DEPLOY_SWEEP_RESULTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "run/plan/plan.h"

namespace longhaul::cli {

inline constexpr int kResultsFormat = 1;

enum class PointState : uint8_t {
  kWaiting,     // has not run yet
  kMeasured,    // "done"
  kRunFailed,   // ran and failed; `reason`
  kImpossible,  // cannot run; `reason`
};
std::string_view ToString(PointState state);  // "waiting", "done", "failed", "impossible"

// A stage of a point's run. Shares of the step time, means over the observed steps after warm-up.
struct StageResult {
  CellId id;
  std::string worker;
  uint32_t first_layer = 0, layers = 0, depth = 0;
  // These five add up to 1, less time that no stage accounts for.
  double compute_share = 0, optimizer_share = 0;
  double wait_input_share = 0, wait_gradient_share = 0, codec_wait_share = 0;
  double codec_share = 0;  // of the codec thread, beside all that
  friend bool operator==(const StageResult&, const StageResult&) = default;
};

// Bytes of a worker's link during the run, with all headers (shaping.h). Unset if the link was not
// shaped: nothing then counts.
struct LinkBytes {
  std::string worker;
  std::optional<uint64_t> up, down;
  std::optional<uint64_t> up_acknowledgements, down_acknowledgements;  // of these
  uint64_t dropped_packets = 0;
  friend bool operator==(const LinkBytes&, const LinkBytes&) = default;
};

struct StepResult {
  uint64_t step = 0;
  double seconds = 0;
  std::optional<double> loss;                   // a replay has none
  std::optional<double> validation_loss;        // after the step; of step 0: before the first
  std::optional<double> clean_validation_loss;  // with boundaries in fp32
  friend bool operator==(const StepResult&, const StepResult&) = default;
};

struct PointResult {
  // The point's identity and setting.
  std::string id;  // SweepPoint's
  uint64_t rate_bits_per_second = 0;
  double delay_seconds = 0, jitter_seconds = 0, loss_share = 0;
  std::string links, forward, backward;  // the codec pair's name and codecs
  std::string schedule, variant;
  uint32_t repeat = 1;

  PointState state = PointState::kWaiting;
  std::string reason;

  // What was measured. Set for measured points only; run_id also for failed ones.
  std::string run_id;
  bool replayed = false;
  std::string replay_source;  // of a replay: where its times were measured
  int64_t started_unix_ms = 0, ended_unix_ms = 0;
  uint64_t steps = 0, warm_up = 0, tokens_per_step = 0;
  double step_seconds = 0;                             // median of the steps after warm-up
  double step_seconds_low = 0, step_seconds_high = 0;  // quartiles
  // On the links as the sweep set them. The floor is the bound without fill and drain; 0: of
  // results of an older version.
  double simulated_seconds = 0, bound_seconds = 0, floor_seconds = 0;
  std::string bottleneck;
  double plan_simulated_seconds = 0, plan_bound_seconds = 0;   // the coordinator's, as planned
  std::string explanation;                                     // the plan's
  double link_bytes_per_step = 0, payload_bytes_per_step = 0;  // all links, both directions
  std::vector<StageResult> stages;
  std::vector<LinkBytes> link_bytes;
  std::vector<StepResult> curve;

  double TokensPerSecond() const {
    return step_seconds > 0 ? static_cast<double>(tokens_per_step) / step_seconds : 0;
  }
  friend bool operator==(const PointResult&, const PointResult&) = default;
};

struct MachineInfo {
  std::string cpu;
  uint32_t cores = 0;  // that this process may use
  uint64_t memory_bytes = 0;
  std::string system, kernel;
  std::string gpus;  // "4 x NVIDIA H200"; empty: none
  friend bool operator==(const MachineInfo&, const MachineInfo&) = default;
};
MachineInfo ThisMachineInfo();

struct SweepResults {
  std::string title, version;
  MachineInfo machine;
  // All that decides what the points are: ("rates", "1gbit, 100mbit"), ("base run", its text with
  // all defaults), ("data", hashes). A sweep goes on only if all of it is the same.
  std::vector<std::pair<std::string, std::string>> identity;
  std::vector<PointResult> points;  // all, in order
  friend bool operator==(const SweepResults&, const SweepResults&) = default;

  size_t Count(PointState state) const;
};

std::string ToJson(const SweepResults& results);
// kInvalidArgument: not a results.json of this version.
StatusOr<SweepResults> ResultsFromJson(std::string_view text);
// A heading and a row a point; RFC 4180.
std::string ToCsv(const SweepResults& results);

// The differences of identity: "rates were 1gbit and are 100mbit"; "" if none.
std::string WhatChanged(const SweepResults& before, const SweepResults& now);

}  // namespace longhaul::cli

#endif  // LONGHAUL_DEPLOY_SWEEP_RESULTS_H_
