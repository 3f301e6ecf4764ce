// Makes the plan of a run: which worker holds which layers, how many microbatches each stage keeps
// in flight, the codecs and bytes of the links, and the predicted step. Pure.
#pragma once

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
#include "run/schedule/search_limit.h"

namespace longhaul::coordinator {

// A measurement from one worker to another.
struct LinkMeasurement {
  double bits_per_second = 0;  // goodput; 0: unknown
  absl::Duration latency;      // one way; 0: unknown
  bool has_failed = false;     // a measurement was tried and failed
  bool is_estimate = false;    // estimated from links between other workers (link_estimates.h)
};

// A worker that a plan may use. The devices that a run takes are the first ones of `devices`, one
// for each rank of a stage (group.tensor).
struct CandidateWorker {
  WorkerId id;
  Incarnation incarnation;
  std::string name;
  // Memory of the smallest device that the run takes; 0: unknown, assumed to suffice.
  uint64_t memory_bytes = 0;
  bool on_gpu = false;
  std::string device;              // the device's model, for people; empty: unknown
  uint64_t host_memory_bytes = 0;  // memory of a GPU's host; 0: unknown, assumed to suffice
  // Indices of the offered devices of the same kind as the first one.
  std::vector<uint32_t> devices;
  std::vector<uint64_t> device_memory_bytes;  // one for each of `devices`
  uint32_t cores = 0;                         // total cores of a CPU worker; 0: unknown
  // Known UUIDs of the GPUs that the run takes; other workers may offer the same GPU.
  std::vector<std::string> shared_devices;
  std::vector<Endpoint> endpoints;
  v1::LayerTimes times;  // times of layers and codecs that the worker measured, in seconds
  // Goodput of its network interface, all links together. 0: unknown; the rate of its best measured
  // link counts instead.
  double egress_bits_per_second = 0, ingress_bits_per_second = 0;
  std::map<WorkerId, LinkMeasurement> to;  // links from this worker; empty: none was measured
  // The reason for each failed attempt of this worker to reach another worker over a transport.
  std::map<std::pair<WorkerId, TransportKind>, std::string> does_not_reach;
  // Relays that this worker can use for links to workers that it cannot reach.
  std::vector<Relay> relays;
};

// The checkpoint that a run resumes from: its step, and the cells that wrote it.
struct ResumePoint {
  uint64_t step = 0;
  std::vector<Cell> cells;
};

// The choice of workers and its alternatives. Step times are simulated; 0: this choice of workers
// and order is impossible.
struct PlacementSummary {
  uint32_t candidates = 0;        // number of workers among which the plan chose
  uint32_t left_out = 0;          // number of further candidates, left out because they share a GPU
  bool is_exact = false;          // no other placement has a shorter step (Placement::is_exact)
  double step_seconds = 0;        // of the chosen chain
  double name_order_seconds = 0;  // of the same workers in the order of their names
  double first_by_name_seconds = 0;  // of the first candidates by name
};

// The effort of a plan's searches.
enum class Effort : uint8_t {
  kWhole,
  kTrial,  // to compare steps: few orders of workers are tried, depths are not searched
};

struct PlanRequest {
  RunId run;
  Epoch epoch;  // number of the attempt at the run (base/ids.h)
  RunSpec spec;
  DataSet data;
  // In pipeline order, replica by replica, one for each cell (one stage of one replica). With
  // candidates_for or with pipeline.replicas auto: candidates, in the order of their names.
  std::vector<CandidateWorker> workers;
  // Set on resume. The old split of layers is kept if the same workers have the same indices and
  // enough memory; else layers are balanced anew.
  std::optional<ResumePoint> resume;
  // A user's assumptions about the network, instead of measurements (`longhaul plan --rate
  // --delay`): the rate of every line before TCP's overhead, and the delay one way. nullopt: none.
  std::optional<uint64_t> assumed_line_bits_per_second;
  std::optional<absl::Duration> assumed_delay;
  // Also predicts steps with other codecs.
  bool with_codec_table = false;

  // Set: `workers` are candidates, and the plan takes this many of them, for all replicas together,
  // in an order that it chooses (place_workers.h). If pipeline.replicas is auto, at most this many.
  std::optional<uint32_t> candidates_for;
  // With candidates_for: neighbours must have a measured link, unless this leaves no possible
  // choice. With several replicas, an unmeasured link instead gets a tenth of its estimated rate.
  bool only_measured = false;
  Effort effort = Effort::kWhole;
  // How long the searches may last. They then end with the best plan so far, however short its
  // search was; the first possible plan is always found.
  schedule::SearchLimit limit;
  // The layers of each stage, if they are already settled.
  std::optional<std::vector<uint32_t>> layers;
  // How the workers were chosen; nullopt: they were not.
  std::optional<PlacementSummary> placement;
  // A worker is on another machine than the coordinator, so a disk may be lost alone.
  bool on_other_machines = false;
};

// Bytes that one stage needs on its device: parameters, gradients, optimizer state, snapshots
// (except on a GPU), `depth` microbatches of activations, buffers. Arguments as of MemoryOf
// (memory.h).
uint64_t StageMemoryBytes(const RunSpec& spec, uint32_t vocabulary, uint32_t layers, bool first,
                          bool last, uint32_t depth, bool on_gpu = false);

// Makes the plan. Layers are balanced by measured times and stay contiguous (split.h). The
// simulator chooses depths and the order of data (order.h), and predicts the step. Codecs are
// chosen for each link. Plan::explanation names the bottleneck. For keys that are auto, MakePlan
// plans with each possible value and takes the best (auto_keys.h). The same request gives the same
// plan, unless request.limit ends a search. Then the plan may differ from call to call, and its
// explanation and Prediction::cut_short say so.
//
// kFailedPrecondition: a stage does not fit in memory (with bytes needed and available), workers
// have too few devices, or two workers cannot reach each other. kInvalidArgument: no workers, or
// more stages than layers. kCancelled once `stop` is requested.
StatusOr<Plan> MakePlan(const PlanRequest& request, const std::stop_token& stop = {});
// The same for a part of a search: does not say that request.limit has ended it. For private use by
// planner.cc and auto_search.cc.
StatusOr<Plan> MakePlanInSearch(const PlanRequest& request, const std::stop_token& stop);

// The plan of one replica, whose stages are request.workers in order, is made in two calls.
// BeginPlan decides the layers of each worker and the edges. Then the caller makes stages that
// share a device slower, also across replicas (sharing.h). FinishPlan chooses codecs, depths and
// the order of data, and predicts the step. Errors: as of MakePlan. For private use by MakePlan and
// replicas.h.
struct BegunPlan {
  Plan plan;
  std::vector<uint32_t> most_depths;  // maximum depth that each cell's memory holds
};
StatusOr<BegunPlan> BeginPlan(const PlanRequest& request);
// `slower`: the finished plan of a slower replica; this replica then only needs to be as fast.
// Null: there is none. Used during the call only.
StatusOr<Plan> FinishPlan(const PlanRequest& request, BegunPlan begun, const Plan* slower = nullptr,
                          const std::stop_token& stop = {});
// Returns the layers of each stage that BeginPlan would choose, or its errors.
StatusOr<std::vector<uint32_t>> SplitFor(const PlanRequest& request);

// Checks that every worker has a device for each rank of a stage (group.tensor). Always OK for one
// rank. kFailedPrecondition names the first worker with too few devices.
Status CheckDevices(const RunSpec& spec, const std::vector<CandidateWorker>& workers);

// Returns the threads of each rank of a stage: pipeline.threads_per_stage, limited by the cores
// that a CPU has for its ranks.
uint32_t ThreadsOfRank(const RunSpec& spec, const CandidateWorker& worker);

// Returns the transport of a link of this kind: the one that links.workers sets for either worker,
// else the run's; for `auto`, the first one that both workers have and by which one reaches the
// other (run/kinds/transports.h has the order). If links.workers sets different ones for the two
// workers, a link between neighbours gets kFailedPrecondition, and any other link gets the run's
// transport. kFailedPrecondition also if a worker has no endpoint of the transport. `upper` is the
// worker nearer to stage 0.
StatusOr<TransportKind> LinkTransport(const RunSpec& spec, const CandidateWorker& upper,
                                      const CandidateWorker& lower,
                                      EdgeKind kind = EdgeKind::kActivations);

// How two workers reach each other. The lower worker dials if it can reach the upper one, else the
// upper one dials. If neither reaches the other, a relay that both can use carries the link. EndsOf
// returns kFailedPrecondition if there is no relay, if links.encrypt is off (relays need encrypted
// links), or if another transport for public networks (TransportTraits::faces_strangers) may work
// without a relay; the message then names it.
struct LinkEnds {
  TransportKind transport;
  bool downstream_dials = false;   // true: the lower worker dials; false: the upper one
  std::vector<Relay> relays = {};  // at most kMostRelays; empty: the link needs none
};
inline constexpr size_t kMostRelays = 3;
StatusOr<LinkEnds> EndsOf(const RunSpec& spec, const CandidateWorker& upper,
                          const CandidateWorker& lower, EdgeKind kind = EdgeKind::kActivations);

// Checks, before the workers are known, that the records of samples that a stage's codecs keep on
// disk (run/boundary/message_footprint.h) fit links.cache_limit. `text_bytes`: size of the text.
// With a fixed number of stages the largest need of a stage counts, else the smallest possible
// need. kFailedPrecondition names the bytes. Returns OK for runs with links.workers and for
// tokenizers other than bytes, which only MakePlan checks.
Status CheckMessageCache(const RunSpec& spec, uint64_t text_bytes);

// Returns the number of stages that each replica of a run gets from `free_workers` workers;
// nullopt: there are too few workers. `free_workers` counts the workers for all replicas together.
std::optional<uint32_t> StageCount(const RunSpec& spec, uint32_t free_workers);

}  // namespace longhaul::coordinator
