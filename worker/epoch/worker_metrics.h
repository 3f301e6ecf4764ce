// A worker's metrics for Prometheus, about itself and its stage (docs/guide/metrics.md).
//
// Reports are counted once a step on their way to the coordinator, and links are asked only on a
// scrape, so training pays nothing. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/metrics/page.h"
#include "longhaul/v1/worker.pb.h"
#include "run/plan/plan.h"
#include "transport/p2p/link.h"

namespace longhaul::worker {

// Metrics of one end of an edge whose link is open.
struct LinkReading {
  EdgeId edge;
  EdgeKind kind = EdgeKind::kActivations;
  std::string peer;   // name of its worker
  std::string codec;  // of sent tensors
  std::string transport;
  double planned_bits_per_second = 0;  // 0: unknown
  uint32_t credits = 0;                // given to the peer when the link opened
  transport::LinkStats stats;
};

// Metrics of the current stage.
struct StageReading {
  RunId run;
  Epoch epoch;
  CellId cell;
  uint64_t planned_memory_bytes = 0;
  std::vector<LinkReading> links;  // empty before the stage trains
};

class WorkerMetrics {
 public:
  // `devices`: those in the hello.
  WorkerMetrics(std::string version, std::vector<v1::Device> devices);

  // Counts a report.
  void Note(const v1::WorkerMessage& message);
  // `stage`: nullopt if the worker has none; then the page shows nothing of an earlier run.
  metrics::Page PageOf(const std::optional<StageReading>& stage, uint64_t memory_used_bytes,
                       uint64_t resident_bytes) const;

 private:
  // Totals of one edge over all steps of the current run.
  struct EdgeTotals {
    uint64_t payload_bytes_sent = 0;
    double send_busy_seconds = 0;
  };
  // Totals of the current run since this worker has had a stage of it.
  struct RunTotals {
    std::string run;
    uint64_t steps = 0, nonfinite_tiles = 0, steps_skipped = 0;
    double seconds = 0, forward = 0, backward = 0, optimizer = 0;
    double wait_input = 0, wait_gradient = 0, wait_codec = 0, codec = 0, collectives = 0;
    std::optional<v1::StepReport> last;
    std::map<uint32_t, EdgeTotals> edges;
    uint64_t checkpoints = 0, checkpoint_problems = 0, checkpoint_step = 0;
  };
  void NoteStep(const v1::StepReport& report);
  // The caller of AddStage and AddLinks holds mutex_. `cell`: the stage's labels. `is_of_run`:
  // whether the totals belong to the stage's run.
  void AddStage(metrics::Page* page, const std::optional<StageReading>& stage) const;
  void AddLinks(metrics::Page* page, const std::vector<LinkReading>& links,
                const std::vector<std::string>& cell, bool is_of_run) const;

  const std::string version_;
  const std::vector<v1::Device> devices_;
  mutable std::mutex mutex_;  // guards the members below
  RunTotals run_;
  std::map<std::string, uint64_t> link_events_;  // by state
  std::map<std::string, uint64_t> faults_;       // by kind
};

}  // namespace longhaul::worker
