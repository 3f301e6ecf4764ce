#include "run/plan/proto/plan_proto.h"

#include <algorithm>

#include "run/plan/proto/fields.h"

namespace longhaul {

static_assert(static_cast<int>(EdgeKind::kUnknown) == v1::Edge::UNKNOWN);
static_assert(static_cast<int>(EdgeKind::kActivations) == v1::Edge::ACTIVATIONS);
static_assert(static_cast<int>(EdgeKind::kReplicas) == v1::Edge::REPLICAS);
static_assert(static_cast<int>(EdgeKind::kTied) == v1::Edge::TIED);
static_assert(static_cast<int>(EdgeKind::kState) == v1::Edge::STATE);

// An unset count is read as 1.
static void OrOne(uint32_t& count) {
  count = std::max(count, 1u);
}
static void OrOne(const uint32_t&) {}

static void Fields(auto&& field, MaybeConst<CollectiveBytes> auto& bytes) {
  field("all_reduce", bytes.all_reduce);
  field("all_gather", bytes.all_gather);
  field("reduce_scatter", bytes.reduce_scatter);
  field("all_to_all", bytes.all_to_all);
}

static void Fields(auto&& field, MaybeConst<CellId> auto& id) {
  field("replica", id.replica);
  field("stage", id.stage);
}

static void Fields(auto&& field, MaybeConst<Endpoint> auto& endpoint) {
  field("transport", endpoint.transport);
  field("addresses", endpoint.addresses);
}

static void Fields(auto&& field, MaybeConst<DataSet> auto& data) {
  field("token_file_sha256", data.token_file_sha256);
  field("tokens", data.tokens);
  field("validation_tokens", data.validation_tokens);
  field("vocabulary", data.vocabulary);
  field("tokenizer", data.tokenizer);
  field("text_bytes", data.text_bytes);
}

static void Fields(auto&& field, MaybeConst<Cell> auto& cell) {
  field("id", cell.id);
  field("worker_id", cell.worker);
  field("incarnation", cell.incarnation);
  field("worker_name", cell.worker_name);
  field("first_layer", cell.layers.first);
  field("layers", cell.layers.count);
  field("embedding", cell.roles.embedding);
  field("head", cell.roles.head);
  field("tensor_ranks", cell.group.tensor);
  field("expert_ranks", cell.group.expert);
  field("devices", cell.devices);
  field("depth", cell.setting.depth);
  field("activation_lead", cell.setting.activation_lead);
  field("threads", cell.setting.threads);
  field("endpoints", cell.endpoints);
  field("memory_bytes", cell.memory_bytes);
  field("message_record_bytes", cell.message_record_bytes);
  field("message_journal_bytes", cell.message_journal_bytes);
}

static void Fields(auto&& field, MaybeConst<Flow> auto& flow) {
  field("codec", flow.codec);
  field("bytes", flow.bytes);
  field("bits_per_second", flow.bits_per_second);
  field("latency_seconds", flow.latency_seconds);
}

static void Fields(auto&& field, MaybeConst<Relay> auto& relay) {
  field("worker_id", relay.worker);
  field("name", relay.name);
}

static void Fields(auto&& field, MaybeConst<Edge> auto& edge) {
  field("id", edge.id);
  field("kind", edge.kind);
  field("from", edge.from);
  field("to", edge.to);
  field("transport", edge.transport);
  field("to_dials", edge.to_dials);
  field("forward", edge.forward);
  field("backward", edge.backward);
  field("relays", edge.relays);
}

static void Fields(auto&& field, MaybeConst<Assignment> auto& assignment) {
  field("run_id", assignment.run);
  field("epoch", assignment.epoch);
  field("start_step", assignment.start_step);
  field("run_yaml", assignment.run_yaml);
  field("copy_every", assignment.copy_every);
  field("slices", assignment.slices);
  OrOne(assignment.slices);
  field("sealed", assignment.sealed);
  field("term", assignment.term);
  field("tenure", assignment.tenure);
  field("hash", assignment.hash);
  field("data", assignment.data);
  field("microbatches_before", assignment.microbatches_before);
  field("cells", assignment.cells);
  field("edges", assignment.edges);
}

static void Fields(auto&& field, MaybeConst<GroupEstimate> auto& estimate) {
  field("forward_collective", estimate.forward_collective);
  field("backward_collective", estimate.backward_collective);
  field("sent", estimate.sent);
  field("collective_seconds", estimate.collective_seconds);
  field("even_share_seconds", estimate.even_share_seconds);
}

static void Fields(auto&& field, MaybeConst<CellEstimate> auto& estimate) {
  field("forward_seconds", estimate.forward_seconds);
  field("backward_seconds", estimate.backward_seconds);
  field("optimizer_seconds", estimate.optimizer_seconds);
  field("memory_available_bytes", estimate.memory_available_bytes);
  field("memory_per_flight_bytes", estimate.memory_per_flight_bytes);
  field("depth_by_memory", estimate.depth_by_memory);
  field("depth_reason", estimate.depth_reason);
  field("egress_bits_per_second", estimate.egress_bits_per_second);
  field("ingress_bits_per_second", estimate.ingress_bits_per_second);
  field("device_kind", estimate.device_kind);
  field("group", estimate.group);
}

static void Fields(auto&& field, MaybeConst<FlowEstimate> auto& estimate) {
  field("encode_seconds", estimate.encode_seconds);
  field("decode_seconds", estimate.decode_seconds);
}

static void Fields(auto&& field, MaybeConst<EdgeEstimate> auto& estimate) {
  field("forward", estimate.forward);
  field("backward", estimate.backward);
}

static void Fields(auto&& field, MaybeConst<PredictedCell> auto& cell) {
  field("compute_seconds", cell.compute_seconds);
  field("codec_seconds", cell.codec_seconds);
  field("wait_above_seconds", cell.wait_above_seconds);
  field("wait_below_seconds", cell.wait_below_seconds);
  field("optimizer_seconds", cell.optimizer_seconds);
  field("egress_share", cell.egress_share);
  field("ingress_share", cell.ingress_share);
}

static void Fields(auto&& field, MaybeConst<PredictedFlow> auto& flow) {
  field("busy_share", flow.busy_share);
  field("rate_share", flow.rate_share);
}

static void Fields(auto&& field, MaybeConst<PredictedEdge> auto& edge) {
  field("forward", edge.forward);
  field("backward", edge.backward);
}

static void Fields(auto&& field, MaybeConst<CodecPrediction> auto& row) {
  field("name", row.name);
  field("forward_codec", row.forward_codec);
  field("backward_codec", row.backward_codec);
  field("forward_bytes", row.forward_bytes);
  field("backward_bytes", row.backward_bytes);
  field("step_seconds", row.step_seconds);
  field("tokens_per_second", row.tokens_per_second);
  field("lower_bound_seconds", row.lower_bound_seconds);
  field("bottleneck", row.bottleneck);
  field("codec_times_known", row.codec_times_known);
}

static void Fields(auto&& field, MaybeConst<RanksPrediction> auto& row) {
  field("tensor", row.tensor);
  field("expert", row.expert);
  OrOne(row.expert);
  field("step_seconds", row.step_seconds);
  field("memory_bytes", row.memory_bytes);
  field("refused", row.refused);
}

static void Fields(auto&& field, MaybeConst<SlicesPrediction> auto& row) {
  field("slices", row.slices);
  field("step_seconds", row.step_seconds);
  field("refused", row.refused);
}

static void Fields(auto&& field, MaybeConst<ReplicasPrediction> auto& row) {
  field("replicas", row.replicas);
  field("stages", row.stages);
  field("step_seconds", row.step_seconds);
  field("refused", row.refused);
}

static void Fields(auto&& field, MaybeConst<Prediction> auto& prediction) {
  field("step_seconds", prediction.step_seconds);
  field("lower_bound_seconds", prediction.lower_bound_seconds);
  field("bottleneck", prediction.bottleneck);
  field("floor_seconds", prediction.floor_seconds);
  field("busiest", prediction.busiest);
  field("busiest_bytes", prediction.busiest_bytes);
  field("unlimited_depth_step_seconds", prediction.unlimited_depth_step_seconds);
  field("exchange_seconds", prediction.exchange_seconds);
  field("cells", prediction.cells);
  field("edges", prediction.edges);
  field("assumed_line_bits_per_second", prediction.assumed_line_bits_per_second);
  field("assumed_delay_seconds", prediction.assumed_delay_seconds);
  field("order_reason", prediction.order_reason);
  field("cut_short", prediction.cut_short);
  field("codecs", prediction.codecs);
  field("ranks", prediction.ranks);
  field("slices", prediction.slices);
  field("replicas", prediction.replicas);
}

static void Fields(auto&& field, MaybeConst<Plan> auto& plan) {
  field("assignment", plan.assignment);
  field("cells", plan.cells);
  field("edges", plan.edges);
  field("prediction", plan.prediction);
  field("explanation", plan.explanation);
  field("retunes", plan.retunes);
  field("retune_reason", plan.retune_reason);
}

template <class Message, class Value>
static Message MessageOf(const Value& value) {
  Message message;
  Fields(ToMessage(&message), value);
  return message;
}

template <class Value>
static Value ValueOf(const google::protobuf::Message& message) {
  Value value;
  Fields(FromMessage(message), value);
  return value;
}

v1::CollectiveBytes ToProto(const CollectiveBytes& bytes) {
  return MessageOf<v1::CollectiveBytes>(bytes);
}
CollectiveBytes FromProto(const v1::CollectiveBytes& bytes) {
  return ValueOf<CollectiveBytes>(bytes);
}

v1::CellId ToProto(const CellId& id) {
  return MessageOf<v1::CellId>(id);
}
CellId FromProto(const v1::CellId& id) {
  return ValueOf<CellId>(id);
}

v1::DataEndpoint ToProto(const Endpoint& endpoint) {
  return MessageOf<v1::DataEndpoint>(endpoint);
}
Endpoint FromProto(const v1::DataEndpoint& endpoint) {
  return ValueOf<Endpoint>(endpoint);
}
std::vector<Endpoint> FromProto(
    const google::protobuf::RepeatedPtrField<v1::DataEndpoint>& endpoints) {
  std::vector<Endpoint> out;
  for (const v1::DataEndpoint& endpoint : endpoints) out.push_back(FromProto(endpoint));
  return out;
}

v1::DataSet ToProto(const DataSet& data) {
  return MessageOf<v1::DataSet>(data);
}
DataSet FromProto(const v1::DataSet& data) {
  return ValueOf<DataSet>(data);
}

v1::Cell ToProto(const Cell& cell) {
  return MessageOf<v1::Cell>(cell);
}
Cell FromProto(const v1::Cell& cell) {
  return ValueOf<Cell>(cell);
}

v1::Assignment ToProto(const Assignment& assignment) {
  return MessageOf<v1::Assignment>(assignment);
}
Assignment FromProto(const v1::Assignment& assignment) {
  return ValueOf<Assignment>(assignment);
}

v1::Plan ToProto(const Plan& plan) {
  return MessageOf<v1::Plan>(plan);
}
Plan FromProto(const v1::Plan& plan) {
  return ValueOf<Plan>(plan);
}

}  // namespace longhaul
