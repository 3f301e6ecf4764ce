#include "run/plan/proto/plan_proto.h"

#include <algorithm>

namespace longhaul {
namespace {

// Beside those of the parts that nobody else converts, for the templates below.
using longhaul::FromProto;
using longhaul::ToProto;

v1::GroupEstimate ToProto(const GroupEstimate& estimate) {
  v1::GroupEstimate out;
  out.set_forward_collective(estimate.forward_collective);
  out.set_backward_collective(estimate.backward_collective);
  *out.mutable_sent() = longhaul::ToProto(estimate.sent);
  if (estimate.collective_seconds) out.set_collective_seconds(*estimate.collective_seconds);
  out.set_even_share_seconds(estimate.even_share_seconds);
  return out;
}

GroupEstimate FromProto(const v1::GroupEstimate& estimate) {
  GroupEstimate out{.forward_collective = estimate.forward_collective(),
                    .backward_collective = estimate.backward_collective(),
                    .sent = longhaul::FromProto(estimate.sent()),
                    .even_share_seconds = estimate.even_share_seconds()};
  if (estimate.has_collective_seconds()) out.collective_seconds = estimate.collective_seconds();
  return out;
}

v1::CellEstimate ToProto(const CellEstimate& estimate) {
  v1::CellEstimate out;
  out.set_forward_seconds(estimate.forward_seconds);
  out.set_backward_seconds(estimate.backward_seconds);
  out.set_optimizer_seconds(estimate.optimizer_seconds);
  out.set_memory_available_bytes(estimate.memory_available_bytes);
  out.set_memory_per_flight_bytes(estimate.memory_per_flight_bytes);
  out.set_depth_by_memory(estimate.depth_by_memory);
  out.set_depth_reason(estimate.depth_reason);
  out.set_egress_bits_per_second(estimate.egress_bits_per_second);
  out.set_ingress_bits_per_second(estimate.ingress_bits_per_second);
  out.set_device_kind(estimate.device_kind);
  if (estimate.group) *out.mutable_group() = ToProto(*estimate.group);
  return out;
}

CellEstimate FromProto(const v1::CellEstimate& estimate) {
  CellEstimate out{.forward_seconds = estimate.forward_seconds(),
                   .backward_seconds = estimate.backward_seconds(),
                   .optimizer_seconds = estimate.optimizer_seconds(),
                   .memory_available_bytes = estimate.memory_available_bytes(),
                   .memory_per_flight_bytes = estimate.memory_per_flight_bytes(),
                   .depth_by_memory = estimate.depth_by_memory(),
                   .depth_reason = estimate.depth_reason(),
                   .egress_bits_per_second = estimate.egress_bits_per_second(),
                   .ingress_bits_per_second = estimate.ingress_bits_per_second(),
                   .device_kind = estimate.device_kind()};
  if (estimate.has_group()) out.group = FromProto(estimate.group());
  return out;
}

v1::FlowEstimate ToProto(const FlowEstimate& estimate) {
  v1::FlowEstimate out;
  out.set_encode_seconds(estimate.encode_seconds);
  out.set_decode_seconds(estimate.decode_seconds);
  return out;
}

FlowEstimate FromProto(const v1::FlowEstimate& estimate) {
  return {.encode_seconds = estimate.encode_seconds(), .decode_seconds = estimate.decode_seconds()};
}

v1::PredictedCell ToProto(const PredictedCell& cell) {
  v1::PredictedCell out;
  out.set_compute_seconds(cell.compute_seconds);
  out.set_codec_seconds(cell.codec_seconds);
  out.set_wait_above_seconds(cell.wait_above_seconds);
  out.set_wait_below_seconds(cell.wait_below_seconds);
  out.set_optimizer_seconds(cell.optimizer_seconds);
  out.set_egress_share(cell.egress_share);
  out.set_ingress_share(cell.ingress_share);
  return out;
}

PredictedCell FromProto(const v1::PredictedCell& cell) {
  return {.compute_seconds = cell.compute_seconds(),
          .codec_seconds = cell.codec_seconds(),
          .wait_above_seconds = cell.wait_above_seconds(),
          .wait_below_seconds = cell.wait_below_seconds(),
          .optimizer_seconds = cell.optimizer_seconds(),
          .egress_share = cell.egress_share(),
          .ingress_share = cell.ingress_share()};
}

v1::PredictedFlow ToProto(const PredictedFlow& flow) {
  v1::PredictedFlow out;
  out.set_busy_share(flow.busy_share);
  out.set_rate_share(flow.rate_share);
  return out;
}

PredictedFlow FromProto(const v1::PredictedFlow& flow) {
  return {.busy_share = flow.busy_share(), .rate_share = flow.rate_share()};
}

v1::CodecPrediction ToProto(const CodecPrediction& row) {
  v1::CodecPrediction out;
  out.set_name(row.name);
  out.set_forward_codec(row.forward_codec);
  out.set_backward_codec(row.backward_codec);
  out.set_forward_bytes(row.forward_bytes);
  out.set_backward_bytes(row.backward_bytes);
  out.set_step_seconds(row.step_seconds);
  out.set_tokens_per_second(row.tokens_per_second);
  out.set_lower_bound_seconds(row.lower_bound_seconds);
  out.set_bottleneck(row.bottleneck);
  out.set_codec_times_known(row.codec_times_known);
  return out;
}

CodecPrediction FromProto(const v1::CodecPrediction& row) {
  return {.name = row.name(),
          .forward_codec = row.forward_codec(),
          .backward_codec = row.backward_codec(),
          .forward_bytes = row.forward_bytes(),
          .backward_bytes = row.backward_bytes(),
          .step_seconds = row.step_seconds(),
          .tokens_per_second = row.tokens_per_second(),
          .lower_bound_seconds = row.lower_bound_seconds(),
          .bottleneck = row.bottleneck(),
          .codec_times_known = row.codec_times_known()};
}

v1::RanksPrediction ToProto(const RanksPrediction& row) {
  v1::RanksPrediction out;
  out.set_tensor(row.tensor);
  out.set_expert(row.expert);
  out.set_step_seconds(row.step_seconds);
  out.set_memory_bytes(row.memory_bytes);
  out.set_refused(row.refused);
  return out;
}

RanksPrediction FromProto(const v1::RanksPrediction& row) {
  return {.tensor = row.tensor(),
          .expert = std::max(row.expert(), 1u),
          .step_seconds = row.step_seconds(),
          .memory_bytes = row.memory_bytes(),
          .refused = row.refused()};
}

v1::SlicesPrediction ToProto(const SlicesPrediction& row) {
  v1::SlicesPrediction out;
  out.set_slices(row.slices);
  out.set_step_seconds(row.step_seconds);
  out.set_refused(row.refused);
  return out;
}

SlicesPrediction FromProto(const v1::SlicesPrediction& row) {
  return {.slices = row.slices(), .step_seconds = row.step_seconds(), .refused = row.refused()};
}

v1::ReplicasPrediction ToProto(const ReplicasPrediction& row) {
  v1::ReplicasPrediction out;
  out.set_replicas(row.replicas);
  out.set_stages(row.stages);
  out.set_step_seconds(row.step_seconds);
  out.set_refused(row.refused);
  return out;
}

ReplicasPrediction FromProto(const v1::ReplicasPrediction& row) {
  return {.replicas = row.replicas(),
          .stages = row.stages(),
          .step_seconds = row.step_seconds(),
          .refused = row.refused()};
}

v1::Flow ToProto(const Flow& flow) {
  v1::Flow out;
  out.set_codec(flow.codec);
  out.set_bytes(flow.bytes);
  out.set_bits_per_second(flow.bits_per_second);
  out.set_latency_seconds(flow.latency_seconds);
  return out;
}

Flow FromProto(const v1::Flow& flow) {
  return {.codec = flow.codec(),
          .bytes = flow.bytes(),
          .bits_per_second = flow.bits_per_second(),
          .latency_seconds = flow.latency_seconds()};
}

v1::EdgeEstimate ToProto(const EdgeEstimate& estimate) {
  v1::EdgeEstimate out;
  *out.mutable_forward() = ToProto(estimate.forward);
  *out.mutable_backward() = ToProto(estimate.backward);
  return out;
}

EdgeEstimate FromProto(const v1::EdgeEstimate& estimate) {
  return {FromProto(estimate.forward()), FromProto(estimate.backward())};
}

v1::PredictedEdge ToProto(const PredictedEdge& edge) {
  v1::PredictedEdge out;
  *out.mutable_forward() = ToProto(edge.forward);
  *out.mutable_backward() = ToProto(edge.backward);
  return out;
}

PredictedEdge FromProto(const v1::PredictedEdge& edge) {
  return {FromProto(edge.forward()), FromProto(edge.backward())};
}

v1::Edge::Kind ToProto(EdgeKind kind) {
  switch (kind) {
    case EdgeKind::kActivations:
      return v1::Edge::ACTIVATIONS;
    case EdgeKind::kReplicas:
      return v1::Edge::REPLICAS;
    case EdgeKind::kTied:
      return v1::Edge::TIED;
    case EdgeKind::kState:
      return v1::Edge::STATE;
    case EdgeKind::kUnknown:
      break;
  }
  return v1::Edge::UNKNOWN;
}

EdgeKind FromProto(v1::Edge::Kind kind) {
  switch (kind) {
    case v1::Edge::ACTIVATIONS:
      return EdgeKind::kActivations;
    case v1::Edge::REPLICAS:
      return EdgeKind::kReplicas;
    case v1::Edge::TIED:
      return EdgeKind::kTied;
    case v1::Edge::STATE:
      return EdgeKind::kState;
    default:
      return EdgeKind::kUnknown;
  }
}

v1::Edge ToProto(const Edge& edge) {
  v1::Edge out;
  out.set_id(edge.id.value());
  out.set_kind(ToProto(edge.kind));
  *out.mutable_from() = longhaul::ToProto(edge.from);
  *out.mutable_to() = longhaul::ToProto(edge.to);
  out.set_transport(edge.transport);
  out.set_to_dials(edge.to_dials);
  *out.mutable_forward() = ToProto(edge.forward);
  *out.mutable_backward() = ToProto(edge.backward);
  for (const Relay& relay : edge.relays) {
    v1::Relay& one = *out.add_relays();
    one.set_worker_id(relay.worker.value());
    one.set_name(relay.name);
  }
  return out;
}

Edge FromProto(const v1::Edge& edge) {
  std::vector<Relay> relays;
  for (const v1::Relay& relay : edge.relays()) {
    relays.push_back({.worker = WorkerId(relay.worker_id()), .name = relay.name()});
  }
  return {.id = EdgeId(edge.id()),
          .kind = FromProto(edge.kind()),
          .from = longhaul::FromProto(edge.from()),
          .to = longhaul::FromProto(edge.to()),
          .transport = edge.transport(),
          .to_dials = edge.to_dials(),
          .forward = FromProto(edge.forward()),
          .backward = FromProto(edge.backward()),
          .relays = std::move(relays)};
}

// By the ToProto and FromProto of their types.
template <typename Message, typename Value>
void AddAll(const std::vector<Value>& values, google::protobuf::RepeatedPtrField<Message>* out) {
  out->Reserve(static_cast<int>(values.size()));
  for (const Value& value : values) *out->Add() = ToProto(value);
}

template <typename Value, typename Message>
std::vector<Value> AllOf(const google::protobuf::RepeatedPtrField<Message>& messages) {
  std::vector<Value> values;
  values.reserve(static_cast<size_t>(messages.size()));
  for (const Message& message : messages) values.push_back(FromProto(message));
  return values;
}

v1::Prediction ToProto(const Prediction& prediction) {
  v1::Prediction out;
  out.set_step_seconds(prediction.step_seconds);
  out.set_lower_bound_seconds(prediction.lower_bound_seconds);
  out.set_bottleneck(prediction.bottleneck);
  out.set_unlimited_depth_step_seconds(prediction.unlimited_depth_step_seconds);
  out.set_exchange_seconds(prediction.exchange_seconds);
  AddAll(prediction.cells, out.mutable_cells());
  AddAll(prediction.edges, out.mutable_edges());
  if (prediction.assumed_line_bits_per_second) {
    out.set_assumed_line_bits_per_second(*prediction.assumed_line_bits_per_second);
  }
  if (prediction.assumed_delay_seconds) {
    out.set_assumed_delay_seconds(*prediction.assumed_delay_seconds);
  }
  out.set_order_reason(prediction.order_reason);
  out.set_cut_short(prediction.cut_short);
  AddAll(prediction.codecs, out.mutable_codecs());
  AddAll(prediction.ranks, out.mutable_ranks());
  out.set_floor_seconds(prediction.floor_seconds);
  out.set_busiest(prediction.busiest);
  out.set_busiest_bytes(prediction.busiest_bytes);
  AddAll(prediction.slices, out.mutable_slices());
  AddAll(prediction.replicas, out.mutable_replicas());
  return out;
}

Prediction FromProto(const v1::Prediction& prediction) {
  Prediction out;
  out.step_seconds = prediction.step_seconds();
  out.lower_bound_seconds = prediction.lower_bound_seconds();
  out.bottleneck = prediction.bottleneck();
  out.unlimited_depth_step_seconds = prediction.unlimited_depth_step_seconds();
  out.exchange_seconds = prediction.exchange_seconds();
  out.cells = AllOf<PredictedCell>(prediction.cells());
  out.edges = AllOf<PredictedEdge>(prediction.edges());
  if (prediction.has_assumed_line_bits_per_second()) {
    out.assumed_line_bits_per_second = prediction.assumed_line_bits_per_second();
  }
  if (prediction.has_assumed_delay_seconds()) {
    out.assumed_delay_seconds = prediction.assumed_delay_seconds();
  }
  out.order_reason = prediction.order_reason();
  out.cut_short = prediction.cut_short();
  out.codecs = AllOf<CodecPrediction>(prediction.codecs());
  out.ranks = AllOf<RanksPrediction>(prediction.ranks());
  out.floor_seconds = prediction.floor_seconds();
  out.busiest = prediction.busiest();
  out.busiest_bytes = prediction.busiest_bytes();
  out.slices = AllOf<SlicesPrediction>(prediction.slices());
  out.replicas = AllOf<ReplicasPrediction>(prediction.replicas());
  return out;
}

}  // namespace

v1::CollectiveBytes ToProto(const CollectiveBytes& bytes) {
  v1::CollectiveBytes out;
  out.set_all_reduce(bytes.all_reduce);
  out.set_all_gather(bytes.all_gather);
  out.set_reduce_scatter(bytes.reduce_scatter);
  out.set_all_to_all(bytes.all_to_all);
  return out;
}

CollectiveBytes FromProto(const v1::CollectiveBytes& bytes) {
  return {bytes.all_reduce(), bytes.all_gather(), bytes.reduce_scatter(), bytes.all_to_all()};
}

v1::CellId ToProto(const CellId& id) {
  v1::CellId out;
  out.set_replica(id.replica);
  out.set_stage(id.stage);
  return out;
}

CellId FromProto(const v1::CellId& id) {
  return {id.replica(), id.stage()};
}

v1::DataEndpoint ToProto(const Endpoint& endpoint) {
  v1::DataEndpoint out;
  out.set_transport(endpoint.transport);
  for (const std::string& address : endpoint.addresses) out.add_addresses(address);
  return out;
}

Endpoint FromProto(const v1::DataEndpoint& endpoint) {
  return {endpoint.transport(), {endpoint.addresses().begin(), endpoint.addresses().end()}};
}

std::vector<Endpoint> FromProto(
    const google::protobuf::RepeatedPtrField<v1::DataEndpoint>& endpoints) {
  return AllOf<Endpoint>(endpoints);
}

v1::DataSet ToProto(const DataSet& data) {
  v1::DataSet out;
  out.set_token_file_sha256(data.token_file_sha256);
  out.set_tokens(data.tokens);
  out.set_validation_tokens(data.validation_tokens);
  out.set_vocabulary(data.vocabulary);
  out.set_tokenizer(data.tokenizer);
  out.set_text_bytes(data.text_bytes);
  return out;
}

DataSet FromProto(const v1::DataSet& data) {
  return {.token_file_sha256 = data.token_file_sha256(),
          .tokens = data.tokens(),
          .validation_tokens = data.validation_tokens(),
          .vocabulary = data.vocabulary(),
          .tokenizer = data.tokenizer(),
          .text_bytes = data.text_bytes()};
}

v1::Cell ToProto(const Cell& cell) {
  v1::Cell out;
  *out.mutable_id() = ToProto(cell.id);
  out.set_worker_id(cell.worker.value());
  out.set_incarnation(cell.incarnation.value());
  out.set_worker_name(cell.worker_name);
  out.set_first_layer(cell.layers.first);
  out.set_layers(cell.layers.count);
  out.set_embedding(cell.roles.embedding);
  out.set_head(cell.roles.head);
  out.set_tensor_ranks(cell.group.tensor);
  out.set_expert_ranks(cell.group.expert);
  out.mutable_devices()->Add(cell.devices.begin(), cell.devices.end());
  out.set_depth(cell.setting.depth);
  out.set_activation_lead(cell.setting.activation_lead);
  out.set_threads(cell.setting.threads);
  AddAll(cell.endpoints, out.mutable_endpoints());
  out.set_memory_bytes(cell.memory_bytes);
  out.set_message_record_bytes(cell.message_record_bytes);
  out.set_message_journal_bytes(cell.message_journal_bytes);
  return out;
}

Cell FromProto(const v1::Cell& cell) {
  return {.id = FromProto(cell.id()),
          .worker = WorkerId(cell.worker_id()),
          .incarnation = Incarnation(cell.incarnation()),
          .worker_name = cell.worker_name(),
          .layers = {cell.first_layer(), cell.layers()},
          .roles = {cell.embedding(), cell.head()},
          .group = {cell.tensor_ranks(), cell.expert_ranks()},
          .devices = {cell.devices().begin(), cell.devices().end()},
          .setting = {cell.depth(), cell.activation_lead(), cell.threads()},
          .endpoints = AllOf<Endpoint>(cell.endpoints()),
          .memory_bytes = cell.memory_bytes(),
          .message_record_bytes = cell.message_record_bytes(),
          .message_journal_bytes = cell.message_journal_bytes()};
}

v1::Assignment ToProto(const Assignment& assignment) {
  v1::Assignment out;
  out.set_run_id(assignment.run.value());
  out.set_epoch(assignment.epoch.value());
  out.set_start_step(assignment.start_step);
  out.set_copy_every(assignment.copy_every);
  out.set_run_yaml(assignment.run_yaml);
  out.set_slices(assignment.slices);
  out.set_sealed(assignment.sealed);
  *out.mutable_data() = ToProto(assignment.data);
  if (assignment.microbatches_before) {
    out.set_microbatches_before(*assignment.microbatches_before);
  }
  AddAll(assignment.cells, out.mutable_cells());
  AddAll(assignment.edges, out.mutable_edges());
  return out;
}

Assignment FromProto(const v1::Assignment& assignment) {
  return {.run = RunId(assignment.run_id()),
          .epoch = Epoch(assignment.epoch()),
          .start_step = assignment.start_step(),
          .run_yaml = assignment.run_yaml(),
          .copy_every = assignment.copy_every(),
          .slices = std::max(assignment.slices(), 1u),
          .sealed = assignment.sealed(),
          .data = FromProto(assignment.data()),
          .microbatches_before = assignment.has_microbatches_before()
                                     ? std::optional(assignment.microbatches_before())
                                     : std::nullopt,
          .cells = AllOf<Cell>(assignment.cells()),
          .edges = AllOf<Edge>(assignment.edges())};
}

v1::Plan ToProto(const Plan& plan) {
  v1::Plan out;
  *out.mutable_assignment() = ToProto(plan.assignment);
  AddAll(plan.cells, out.mutable_cells());
  AddAll(plan.edges, out.mutable_edges());
  *out.mutable_prediction() = ToProto(plan.prediction);
  out.set_explanation(plan.explanation);
  out.set_retunes(plan.retunes);
  out.set_retune_reason(plan.retune_reason);
  return out;
}

Plan FromProto(const v1::Plan& plan) {
  return {.assignment = FromProto(plan.assignment()),
          .cells = AllOf<CellEstimate>(plan.cells()),
          .edges = AllOf<EdgeEstimate>(plan.edges()),
          .prediction = FromProto(plan.prediction()),
          .explanation = plan.explanation(),
          .retunes = plan.retunes(),
          .retune_reason = plan.retune_reason()};
}

}  // namespace longhaul
