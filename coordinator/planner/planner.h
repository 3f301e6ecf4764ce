// Which worker holds which layers, how deep each stage may run, and what that will take. Pure.
#ifndef LONGHAUL_COORDINATOR_PLANNER_PLANNER_H_
#define LONGHAUL_COORDINATOR_PLANNER_PLANNER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/ids.h"
#include "base/status.h"
#include "longhaul/v1/worker.pb.h"
#include "run/file/run_spec.h"
#include "run/plan/plan.h"

namespace longhaul::coordinator {

// What was measured from one worker to another.
struct LinkMeasurement {
  double bits_per_second = 0;  // goodput; 0: unknown
  absl::Duration latency;      // one way
  bool has_failed = false;     // it was tried in vain to measure it
  bool is_estimate = false;    // of what was measured between others (link_estimates.h)
};

struct CandidateWorker {
  WorkerId id;
  Incarnation incarnation;
  std::string name;
  // Of the device with the least among those that the run takes; 0: unknown, taken to suffice.
  uint64_t memory_bytes = 0;
  bool on_gpu = false;
  std::string device;              // what computes, in words; "" where nobody says
  uint64_t host_memory_bytes = 0;  // on a GPU, of the host's memory; 0: unknown, taken to suffice
  // The numbers of those that it offers, as far as they are of the first one's kind.
  std::vector<uint32_t> devices;
  std::vector<uint64_t> device_memory_bytes;  // of each of these
  uint32_t cores = 0;                         // on a CPU, of all its devices together; 0: unknown
  // The UUIDs of the GPUs that the run takes, which other workers may have, too; as far as known.
  std::vector<std::string> shared_devices;
  std::vector<Endpoint> endpoints;
  v1::LayerTimes times;
  // Goodput of its interface, all links together; 0: unknown. Then the best of its measured links
  // counts, so that links of one interface share it.
  double egress_bits_per_second = 0, ingress_bits_per_second = 0;
  std::map<WorkerId, LinkMeasurement> to;  // from this worker; empty: nothing was measured
  // Whom it was tried to reach from this worker, over which transport, and why that failed.
  std::map<std::pair<WorkerId, TransportKind>, std::string> does_not_reach;
  // Who can carry its links to workers that it does not reach, best first.
  std::vector<Relay> relays;
};

// The checkpoint that a run goes on from: its step, and the cells that wrote it.
struct ResumePoint {
  uint64_t step = 0;
  std::vector<Cell> cells;
};

// What a placement was chosen among. Steps are simulated, in seconds; 0: such a pipeline cannot be.
struct PlacementSummary {
  uint32_t candidates = 0;
  uint32_t left_out = 0;             // beside these, because others have their GPUs, too
  bool is_exact = false;             // every chain was considered
  double step_seconds = 0;           // of the chain that was chosen
  double name_order_seconds = 0;     // of the same workers in the order of their names
  double first_by_name_seconds = 0;  // of the first candidates by name
};

// How long a plan is searched for.
enum class Effort : uint8_t {
  kWhole,
  kTrial,  // to compare its step with others': few orders of workers, all depth that there is
};

struct PlanRequest {
  RunId run;
  Epoch epoch;
  RunSpec spec;
  DataSet data;
  // In pipeline order, unless candidates_for is set; as many as stages, of each replica. Where
  // pipeline.replicas is auto they are candidates in the order of their names.
  std::vector<CandidateWorker> workers;
  // On resume. Its split is kept where the same workers (by id) stand in the same places and have
  // the memory; else the layers are balanced anew.
  std::optional<ResumePoint> resume;
  // What a user assumes of the network, instead of what was measured.
  std::optional<uint64_t> assumed_line_bits_per_second;
  std::optional<absl::Duration> assumed_delay;
  // Also predict what other codecs would do.
  bool with_codec_table = false;

  // Set: `workers` are candidates in the order of their names, and the plan takes so many of them,
  // for all replicas together, in an order that it chooses (place_workers.h). Where
  // pipeline.replicas is auto it takes at most so many.
  std::optional<uint32_t> candidates_for;
  // Then only workers whose link was measured are put side by side, if that is possible.
  bool only_measured = false;
  Effort effort = Effort::kWhole;
  // Of each stage, where they are settled.
  std::optional<std::vector<uint32_t>> layers;
  // Why the workers stand as they do, where that was chosen.
  std::optional<PlacementSummary> placement;
};

// Memory that one stage needs of its device: parameters, gradients, the optimizer's moments,
// snapshots (not on a GPU: memory.h), `depth` microbatches of activations, buffers.
uint64_t StageMemoryBytes(const RunSpec& spec, uint32_t vocabulary, uint32_t layers, bool first,
                          bool last, uint32_t depth, bool on_gpu = false);

// Contiguous layers balanced by measured times (exact: dynamic programming over the slowest stage),
// depth and order of data by the simulator (order.h), codecs by link, prediction, and a paragraph
// that names the bottleneck. A stage of a group takes the time that was measured of all its ranks
// together, their collectives among it. Where the section `group` says auto, every group that it
// leaves open is planned, and the fastest plan is taken (ranks.h). pipeline.slices (slices.h) and
// pipeline.replicas (replica_count.h) may be auto, too.
// kFailedPrecondition where a stage does not fit, with bytes needed and available; kInvalidArgument
// for more stages than layers; kCancelled once `stop` is requested. The same request has the same
// plan, however long that takes.
StatusOr<Plan> MakePlan(const PlanRequest& request, const std::stop_token& stop = {});

// The plan of one of the replicas that the run file asks for, the chain that request.workers are,
// in two halves. The first says who has which layers and who is joined by what. Between them
// whoever shares a device with stages of any replica is made slower (sharing.h).
struct BegunPlan {
  Plan plan;
  std::vector<uint32_t> most_depths;  // of each cell, what its memory holds
};
StatusOr<BegunPlan> BeginPlan(const PlanRequest& request);
// `slower`: a replica that is finished already, and than which this one need not be faster; null:
// there is none.
StatusOr<Plan> FinishPlan(const PlanRequest& request, BegunPlan begun, const Plan* slower = nullptr,
                          const std::stop_token& stop = {});
// The split that it would choose: layers by stage. Errors as its.
StatusOr<std::vector<uint32_t>> SplitFor(const PlanRequest& request);

// Whether every worker has a device for each rank of the run's group. kFailedPrecondition naming
// the first that has too few, and what that one offers.
Status CheckDevices(const RunSpec& spec, const std::vector<CandidateWorker>& workers);

// Threads of each rank of a stage: pipeline.threads_per_stage, but no more than the ranks on a CPU
// have cores.
uint32_t ThreadsOfRank(const RunSpec& spec, const CandidateWorker& worker);

// Which transport a link of this kind has: the run's, or that of either one's exception.
// kFailedPrecondition where a worker does not listen on it, or neighbours' exceptions disagree; of
// others that is the run's.
StatusOr<TransportKind> LinkTransport(const RunSpec& spec, const CandidateWorker& upper,
                                      const CandidateWorker& lower,
                                      EdgeKind kind = EdgeKind::kActivations);

// And which side dials: the lower one where it may reach the upper one. Where neither reaches the
// other, over that transport or over gRPC, a relay that both can use carries the link.
// kFailedPrecondition where there is none, or where it may not be: it carries encrypted links
// alone.
struct LinkEnds {
  TransportKind transport;
  bool downstream_dials = false;
  std::vector<Relay> relays = {};  // at most kMostRelays; empty: the link needs none
};
inline constexpr size_t kMostRelays = 3;
StatusOr<LinkEnds> EndsOf(const RunSpec& spec, const CandidateWorker& upper,
                          const CandidateWorker& lower, EdgeKind kind = EdgeKind::kActivations);

// As MakePlan would check `links.cache_limit`, before it is known who takes part: with fixed stages
// the largest one's need, else the least that any has. kFailedPrecondition with the bytes. Leaves
// to MakePlan what it cannot know: runs with exceptions by worker, and tokenizers whose count of
// tokens is not that of the text's bytes.
Status CheckMessageCache(const RunSpec& spec, uint64_t text_bytes);

// How many stages each replica of a run gets from so many connected workers; nullopt: not enough
// yet.
std::optional<uint32_t> StageCount(const RunSpec& spec, uint32_t free_workers);

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_PLANNER_PLANNER_H_
