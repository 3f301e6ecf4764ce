// Makes the points of a sweep (sweep_spec.h). A point is one run, with its links, codecs and
// schedule. Pure.
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
  SweepCodecs links;                  // codecs of the links
  ScheduleKind schedule = ScheduleKind::kLinkAware;
  std::string variant;                 // "": none
  uint32_t repeat = 1;                 // from 1
  std::vector<std::string> overrides;  // changes to the base run that make this point
  RunSpec spec;                        // the run; means nothing if the point is impossible
  std::string impossible;              // why the point cannot run; "": it can
};

struct SweepPlan {
  RunSpec base;          // the base run, with the changes that all points have
  uint32_t workers = 0;  // number of workers of the cluster
  std::vector<SweepPoint> points;
};

// Makes all points of `sweep`. `base_yaml` is the text of the base run's file, and `base_file` the
// file's name, for messages. `more` are changes to the base run from the command line, in the form
// of --set, made after the changes of `sweep.set`. kInvalidArgument: the sweep or its base run is
// wrong. If only a point is wrong, its `impossible` says why.
StatusOr<SweepPlan> MakeSweepPlan(const SweepSpec& sweep, std::string_view base_yaml,
                                  std::string_view base_file, const std::vector<std::string>& more);

// Returns "100mbit, 25ms, paper, 1f1b, repeat 2": codecs, the rate and the delay if there are such,
// and of the other values only those in which the points of `sweep` differ.
std::string Describe(const SweepPoint& point, const SweepSpec& sweep);

}  // namespace longhaul::cli
