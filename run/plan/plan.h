// A decided run as a graph of cells. A cell is one stage of one replica of the pipeline, on one
// worker. An edge connects two cells that send each other tensors.
//
//   for (const Edge* edge : assignment.EdgesOf(cell.id, EdgeKind::kActivations)) ...
//   const Edge* above = assignment.Incoming(cell.id, EdgeKind::kActivations);  // null: first stage
//
// Neighbours are never derived from an index: chain.h makes the edges, all other code follows them.
// Plain data; any thread may read it. proto/plan_proto.h converts it to messages and back.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "base/words.h"
#include "codec/spec.h"
#include "run/plan/collective_bytes.h"

namespace longhaul {

struct CellId {
  uint32_t replica = 0;
  uint32_t stage = 0;
  friend auto operator<=>(const CellId&, const CellId&) = default;
};
std::string ToString(const CellId& id);  // "stage 1"; "stage 1 of replica 2", except for replica 0
// For a column of a table: "1" (the stage). If `of_replicas`: "2:1" (the replica and the stage).
std::string ShortName(const CellId& id, bool of_replicas);

// Numbered as v1::Edge::Kind.
enum class EdgeKind : uint8_t {
  kUnknown,      // an edge of a newer version's plan, which this version cannot serve
  kActivations,  // activations from `from` to `to`, their gradients back
  kReplicas,     // the same stage of two replicas: gradients are reduced
  kTied,         // the embedding's stage and the head's: both hold the same matrix
  kState,        // copies of a stage's state
};
constexpr std::string_view ToString(EdgeKind kind) {
  return WordOf(kind, {"unknown", "activations", "replicas", "tied", "state"}, "unknown");
}

// Transformer blocks [first, first + count).
struct LayerRange {
  uint32_t first = 0;
  uint32_t count = 0;
  uint32_t end() const { return first + count; }
  friend bool operator==(const LayerRange&, const LayerRange&) = default;
};

// The parts of the model that a cell holds in addition to its blocks.
struct Roles {
  bool embedding = false;
  bool head = false;  // norm, head and loss
  friend bool operator==(const Roles&, const Roles&) = default;
};

// The ranks that share a cell's layers (GroupSpec in run/file/run_spec.h).
struct Group {
  uint32_t tensor = 1;  // number of ranks
  uint32_t expert = 1;  // parts of each block's experts
  friend bool operator==(const Group&, const Group&) = default;
};

// Returns the threads of each rank if `ranks` ranks share a cell: `wanted`, but at most the rank's
// share of `cores`, and at least 1. No limit for one rank, or if `cores` is 0 (unknown, or a GPU).
uint32_t ThreadsOfRank(uint32_t wanted, uint32_t ranks, uint32_t cores);

// For people: "2 ranks on cpu 0-1", "4 ranks, experts in 2 parts, on cuda 0-3".
std::string GroupText(const Group& group, std::string_view device_kind,
                      std::span<const uint32_t> devices);

// The addresses of one data transport of a worker.
struct Endpoint {
  std::string transport;  // a name of run/kinds/transports.h
  // "10.77.0.2:41234"; empty: the worker can dial, but not be dialled
  std::vector<std::string> addresses;
  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

// How a cell runs its microbatches. May change while the run trains (planner/retune.h).
struct Setting {
  uint32_t depth = 1;  // microbatches in flight
  // Microbatches by which activations go ahead of gradients on the wire
  // (schedule::PolicyOptions::activation_lead); at most the least depth of the cells above.
  uint32_t activation_lead = 0;
  uint32_t threads = 1;
  friend bool operator==(const Setting&, const Setting&) = default;
};

struct Cell {
  CellId id;
  WorkerId worker;
  Incarnation incarnation;
  std::string worker_name;
  LayerRange layers;
  Roles roles;
  Group group;
  std::vector<uint32_t> devices;  // indices of devices that the worker offers
  Setting setting;
  std::vector<Endpoint> endpoints;  // the worker's, in its order
  // Reserved for the cell. `memory_bytes`: the predicted peak on its devices. Codecs with state
  // keep records on disk: the exact bytes of these records, and the maximum bytes of their undo
  // journal.
  uint64_t memory_bytes = 0;
  uint64_t message_record_bytes = 0;
  uint64_t message_journal_bytes = 0;

  // Null: the worker has no endpoint of this transport. Points into `endpoints`.
  const Endpoint* EndpointOf(std::string_view transport) const;
};

// One direction of an edge.
struct Flow {
  // In canonical form. For kReplicas: the form of gradients (run/replicas/options.h), not a codec.
  CodecSpec codec;
  // Mean encoded bytes, without frame headers: of a microbatch; for kTied, of a step.
  uint64_t bytes = 0;
  // Between the two workers, as assumed by the plan. 0: unknown.
  double bits_per_second = 0;  // goodput
  double latency_seconds = 0;  // one way
};

// The relay of an edge whose ends cannot reach each other.
struct Relay {
  WorkerId worker;   // empty: the coordinator
  std::string name;  // for people
  friend bool operator==(const Relay&, const Relay&) = default;
};

struct Edge {
  EdgeId id;
  EdgeKind kind = EdgeKind::kActivations;
  CellId from, to;
  std::string transport;  // both workers have an endpoint of it
  bool to_dials = false;  // true: `to` dials; false: `from` dials
  Flow forward;           // sent by `from`
  Flow backward;          // sent by `to`
  // The relays of an edge of transport "relay"; the ends use the first that works. Empty: the edge
  // has another transport.
  std::vector<Relay> relays = {};

  const CellId& dialler() const { return to_dials ? to : from; }
  const CellId& dialled() const { return to_dials ? from : to; }
  // Returns the other end of the edge. `cell` is one end.
  const CellId& PeerOf(const CellId& cell) const { return cell == from ? to : from; }
  // The flow that `cell` sends, and the flow that it receives.
  const Flow& SentBy(const CellId& cell) const { return cell == from ? forward : backward; }
  const Flow& SentTo(const CellId& cell) const { return cell == from ? backward : forward; }
};

// The tokens of a run's text.
struct DataSet {
  // Content address of the token file; for data sets, of the list that names their chunks.
  std::string token_file_sha256;
  uint64_t tokens = 0;
  uint64_t validation_tokens = 0;  // at the end of the file
  uint32_t vocabulary = 0;         // number of different tokens
  std::string tokenizer;           // its name
  uint64_t text_bytes = 0;
  friend bool operator==(const DataSet&, const DataSet&) = default;
};

// The decisions of a plan, and everything that a worker needs for them.
// Returns the number that the first 8 bytes of `hash` are, in little-endian order. Stamp(0): it has
// fewer bytes.
Stamp StampOf(std::string_view hash);

struct Assignment {
  RunId run;
  Epoch epoch;              // number of the attempt at the run (base/ids.h)
  uint64_t start_step = 0;  // the step of the checkpoint to begin from; 0: from scratch
  std::string run_yaml;     // canonical run file (ToYaml)
  // Steps between two copies of every stage's state to another worker, in addition to the run
  // file's checkpoints. 0: no copies.
  uint64_t copy_every = 0;
  // Slices (sequence chunks) of each microbatch: the run file's pipeline.slices, or the plan's
  // choice if that is auto.
  uint32_t slices = 1;
  // True: all links between the run's workers are encrypted (transport::LinkOptions::sealed).
  bool sealed = false;
  // The leader that made this assignment. Assignments of versions before 9 of the protocol have
  // neither these fields nor a hash.
  uint64_t term = 0;
  Tenure tenure;
  std::string hash;  // 32 bytes: names the assignment; secrets of links are made of it
  DataSet data;
  // Microbatches that all replicas together read before start_step. nullopt (a plan of an older
  // version): start_step x the microbatches that a step has by the run file.
  std::optional<uint64_t> microbatches_before;
  std::vector<Cell> cells;  // by their ids
  std::vector<Edge> edges;  // by their ids

  Stamp stamp() const { return StampOf(hash); }
  // Returns the cell's index in `cells` and in other vectors by cell, or cells.size() if there is
  // no such cell.
  size_t PlaceOf(const CellId& id) const;
  // Null: there is none. Here and below, pointers point into `cells` or `edges`.
  const Cell* Find(const CellId& id) const;
  Cell* Find(const CellId& id);
  const Edge* Find(EdgeId id) const;
  Edge* Find(EdgeId id);
  // The edges of this kind that have `cell` at one end.
  std::vector<const Edge*> EdgesOf(const CellId& cell, EdgeKind kind) const;
  // Incoming returns an edge whose `to` is `cell`, Outgoing one whose `from` is `cell`; null: there
  // is none. For kActivations: the edge to the stage above, and the one to the stage below.
  const Edge* Incoming(const CellId& cell, EdgeKind kind) const;
  const Edge* Outgoing(const CellId& cell, EdgeKind kind) const;
  bool HasReplicas() const;  // true: at least two
};

// Checks that ids are in order and unique, that every cell has layers and a depth, and that both
// cells of every edge exist. Along the activations, stages and layers must have no gap, and no
// activation_lead may exceed the depth of any stage above. kInvalidArgument names all faults, but
// only the first cell with a wrong number of activation edges.
Status CheckAssignment(const Assignment& assignment);

// Estimate for a cell whose layers several ranks share: forward and backward of one microbatch.
struct GroupEstimate {
  std::string forward_collective, backward_collective;  // names, for people
  CollectiveBytes sent;                                 // sent by all ranks
  std::optional<double> collective_seconds;             // nullopt: not known, as on GPUs
  double even_share_seconds = 0;  // one device's time divided evenly among the ranks
  friend bool operator==(const GroupEstimate&, const GroupEstimate&) = default;
};

// The planner's inputs and estimates for a cell.
struct CellEstimate {
  // From measured layer times, one microbatch; the optimizer, one step.
  double forward_seconds = 0, backward_seconds = 0, optimizer_seconds = 0;
  uint64_t memory_available_bytes = 0;  // on each device; 0: unknown
  // For each microbatch in flight; included in Cell::memory_bytes.
  uint64_t memory_per_flight_bytes = 0;
  uint32_t depth_by_memory =
      0;                     // what memory would hold, at most a step's microbatches; 0: not known
  std::string depth_reason;  // reason for the depth: "memory holds 5"
  // Goodput of the worker's interface used by the prediction; 0: unknown, unlimited.
  double egress_bits_per_second = 0, ingress_bits_per_second = 0;
  std::string device_kind;  // of Cell::devices: "cpu", "cuda"; "": unknown
  std::optional<GroupEstimate> group;
};

// Measured codec times of one microbatch. 0: not measured, or no codec.
struct FlowEstimate {
  double encode_seconds = 0, decode_seconds = 0;
};
struct EdgeEstimate {
  FlowEstimate forward, backward;
};

// How a cell spends a simulated step; the times add up to the step.
struct PredictedCell {
  double compute_seconds = 0;
  double codec_seconds = 0;       // idle until an arrived tensor is decoded
  double wait_above_seconds = 0;  // idle for an activation, or for the final norm
  double wait_below_seconds = 0;  // idle for a gradient
  double optimizer_seconds = 0;
  double egress_share = 0;  // 0 to 1; share of its interface's capacity in a step
  double ingress_share = 0;
};
struct PredictedFlow {
  double busy_share = 0;  // share of the step with a tensor on its way
  double rate_share = 0;  // bytes of a step / what the direction alone could carry in a step
};
struct PredictedEdge {
  PredictedFlow forward, backward;
};

// The predicted step with another pair of codecs for the same run.
struct CodecPrediction {
  std::string name;  // "none", "bf16", "paper", "default", "gauss", "this run"
  std::string forward_codec, backward_codec;
  uint64_t forward_bytes = 0, backward_bytes = 0;  // one encoded microbatch
  double step_seconds = 0;
  double tokens_per_second = 0;
  double lower_bound_seconds = 0;
  std::string bottleneck;
  bool codec_times_known = false;  // false: its codecs count as taking no time
};

// The predicted step with other numbers of ranks and parts of experts for the same run.
struct RanksPrediction {
  uint32_t tensor = 1, expert = 1;
  double step_seconds = 0;
  uint64_t memory_bytes = 0;  // of a device, for the stage that needs the most
  std::string refused;        // a sentence: why it is impossible; then other values are unknown
};

// The predicted step with another number of slices of a microbatch for the same run.
struct SlicesPrediction {
  uint32_t slices = 1;
  double step_seconds = 0;
  std::string refused;  // as RanksPrediction's
};

// The predicted step with another number of replicas for the same batch.
struct ReplicasPrediction {
  uint32_t replicas = 1;
  uint32_t stages = 1;      // of each
  double step_seconds = 0;  // of all replicas, with their exchange of gradients
  std::string refused;      // as RanksPrediction's
};

struct Prediction {
  double step_seconds = 0;  // simulated
  double lower_bound_seconds = 0;
  std::string bottleneck;  // "egress of stage 1"
  // The floor: the time of a step if steps follow each other without a gap. The busiest resource
  // (`busiest`) works this long in a step and carries `busiest_bytes` (0: it computes).
  // lower_bound_seconds - floor_seconds is the pipeline bubble ("fill and drain").
  double floor_seconds = 0;
  std::string busiest;  // as `bottleneck`
  uint64_t busiest_bytes = 0;
  double unlimited_depth_step_seconds = 0;  // if every cell could hold all microbatches
  double exchange_seconds = 0;              // how much the replicas' exchange lengthens the step
  std::vector<PredictedCell> cells;         // in the order of Assignment::cells
  std::vector<PredictedEdge> edges;         // in the order of Assignment::edges
  // Values of `longhaul plan --rate --delay`, used instead of measurements: the rate of every
  // interface each way, and the delay one way.
  std::optional<uint64_t> assumed_line_bits_per_second;
  std::optional<double> assumed_delay_seconds;
  std::string order_reason;                  // reason for the order of data
  std::string cut_short;                     // why the search ended early; "": it did not
  std::vector<CodecPrediction> codecs;       // `longhaul plan` of several stages only
  std::vector<RanksPrediction> ranks;        // the numbers tried if the run file says auto
  std::vector<SlicesPrediction> slices;      // likewise
  std::vector<ReplicasPrediction> replicas;  // likewise
};

// An assignment, the planner's inputs, and its prediction. For the planner, the store and people.
struct Plan {
  Assignment assignment;
  std::vector<CellEstimate> cells;  // in the order of Assignment::cells
  std::vector<EdgeEstimate> edges;  // in the order of Assignment::edges
  Prediction prediction;
  std::string explanation;  // a paragraph for people
  // How often depths and leads were changed while this epoch (attempt) trained. After a change, the
  // plan has the new settings, times, rates and prediction; `retune_reason` is the last reason.
  uint32_t retunes = 0;
  std::string retune_reason;
};

}  // namespace longhaul
