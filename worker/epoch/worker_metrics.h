// A worker's metrics for Prometheus, about itself and its stage (docs/guide/metrics.md).
//
// Training does not become slower: metrics of steps come from the reports to the coordinator, and
// metrics of links are read only when Prometheus asks. Thread-safe.
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
  std::string peer;   // name of the peer's worker
  std::string codec;  // codec of sent tensors
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
  // `devices`: the devices that the worker tells the coordinator of.
  WorkerMetrics(std::string version, std::vector<v1::Device> devices);

  // Counts a report to the coordinator. Call it for every message.
  void Note(const v1::WorkerMessage& message);
  // Makes a page of metrics. `stage`: the current stage; nullopt: the worker has none, and the page
  // has no metrics of runs. `memory_used_bytes`: host memory of this process. `resident_bytes`:
  // memory of a stage that is kept for the next attempt; 0: none.
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
  // The caller of AddStage and AddLinks holds mutex_. `cell`: the labels of the stage. `is_of_run`:
  // true if run_ is about the stage's run.
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
