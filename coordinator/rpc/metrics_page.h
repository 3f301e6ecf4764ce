// The page of metrics that Prometheus reads from the coordinator: about itself, runs and workers
// (docs/guide/metrics.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/metrics/page.h"
#include "coordinator/rpc/leadership_source.h"
#include "coordinator/rpc/shell.h"
#include "longhaul/v1/control.pb.h"

namespace longhaul::coordinator {

// How long the page shows a run after its end, so that a scrape sees the end.
inline constexpr absl::Duration kShownAfterEnd = absl::Minutes(15);

// All values of the page. They are read one after the other, so each may be of another moment.
struct Reading {
  std::vector<v1::RunStatus> runs;
  std::vector<v1::WorkerStatus> workers;
  std::vector<v1::MeasuredLink> links;
  FaultCounts faults;
  ShellUse use;
  uint64_t store_bytes = 0;
  v1::LeadershipInfo leadership;
  std::string version;
};

// Reads all values. Thread-safe; may wait for a tick of the state machine. `state_dir`: the folder
// of the store, whose size is on the page.
Reading Read(const Shell& shell, const LeadershipSource& leads, const std::string& state_dir,
             const std::string& version);

// Makes the page. Shows only links between workers that a run uses, because all pairs would be too
// many. Pure.
metrics::Page PageOf(const Reading& reading);

}  // namespace longhaul::coordinator
