// The points of a sweep: one run each. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "base/status.h"
#include "deploy/sweep/sweep_spec.h"
#include "run/file/run_spec.h"

namespace longhaul::cli {

struct SweepPoint {
  uint32_t index = 0;                 // from 0, in the order in which they run
  std::string id;                     // "100mbit/25ms/paper/1f1b/r1"; unique in the sweep
  uint64_t rate_bits_per_second = 0;  // of every link, each way; 0 = not shaped
  absl::Duration delay;               // one way
  SweepCodecs links;
  ScheduleKind schedule = ScheduleKind::kLinkAware;
  std::string variant;                 // "": none
  uint32_t repeat = 1;                 // from 1
  std::vector<std::string> overrides;  // changes to the base run that make this point
  RunSpec spec;                        // set unless the point is impossible
  std::string impossible;              // why the point cannot run; "": it can
};

struct SweepPlan {
  RunSpec base;          // the base run, with the changes of all points
  uint32_t workers = 0;  // of the cluster
  std::vector<SweepPoint> points;
};

// `base_file` and its text `base_yaml`: the sweep's base run. `more`: changes to it from the
// command line, after the sweep's own. Returns an error if the base run itself is wrong. A single
// wrong point has the reason in `impossible`.
StatusOr<SweepPlan> MakeSweepPlan(const SweepSpec& sweep, std::string_view base_yaml,
                                  std::string_view base_file, const std::vector<std::string>& more);

// Returns "100 Mbit/s, 25 ms, paper, 1f1b, repeat 2": the properties in which the points of `sweep`
// differ.
std::string Describe(const SweepPoint& point, const SweepSpec& sweep);

}  // namespace longhaul::cli
