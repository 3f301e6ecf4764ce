// What a worker tells Prometheus of itself and of the stage that it has (docs/guide/metrics.md).
//
// Reports are counted on their way to the coordinator, once a step; links are asked when somebody
// scrapes. So training pays nothing. Thread-safe.
#ifndef LONGHAUL_WORKER_RPC_WORKER_METRICS_H_
#define LONGHAUL_WORKER_RPC_WORKER_METRICS_H_

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

// One end of an edge, while its link is open.
struct LinkReading {
  EdgeId edge;
  EdgeKind kind = EdgeKind::kActivations;
  std::string peer;   // name of its worker
  std::string codec;  // of what is sent
  std::string transport;
  double planned_bits_per_second = 0;  // 0: unknown
  uint32_t credits = 0;                // that the peer was given when the link opened
  transport::LinkStats stats;
};

// The stage at hand.
struct StageReading {
  RunId run;
  Epoch epoch;
  CellId cell;
  uint64_t planned_memory_bytes = 0;
  std::vector<LinkReading> links;  // none before the stage trains
};

class WorkerMetrics {
 public:
  // `devices` as the hello names them.
  WorkerMetrics(std::string version, std::vector<v1::Device> devices);

  // What the worker reports.
  void Note(const v1::WorkerMessage& message);
  // `stage`: nullopt where the worker has none; then nothing of an earlier run is shown.
  metrics::Page PageOf(const std::optional<StageReading>& stage, uint64_t memory_used_bytes,
                       uint64_t resident_bytes) const;

 private:
  // Of one edge, over all steps of the run at hand.
  struct EdgeTotals {
    uint64_t payload_bytes_sent = 0;
    double send_busy_seconds = 0;
  };
  // Of the run at hand, since this worker has a stage of it.
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
  // With mutex_ held. `cell`: labels of the stage; `is_of_run`: whose run the totals are.
  void AddStage(metrics::Page* page, const std::optional<StageReading>& stage) const;
  void AddLinks(metrics::Page* page, const std::vector<LinkReading>& links,
                const std::vector<std::string>& cell, bool is_of_run) const;

  const std::string version_;
  const std::vector<v1::Device> devices_;
  mutable std::mutex mutex_;  // of what follows
  RunTotals run_;
  std::map<std::string, uint64_t> link_events_;  // by state
  std::map<std::string, uint64_t> faults_;       // by kind
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_RPC_WORKER_METRICS_H_
