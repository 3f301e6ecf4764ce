#include "run/plan/proto/plan_proto.h"

#include <algorithm>

#include "run/plan/proto/prediction_proto.h"
#include "run/plan/proto/repeated.h"

namespace longhaul {

static v1::Flow ToProto(const Flow& flow) {
  v1::Flow out;
  out.set_codec(ToString(flow.codec));
  out.set_bytes(flow.bytes);
  out.set_bits_per_second(flow.bits_per_second);
  out.set_latency_seconds(flow.latency_seconds);
  return out;
}

static Flow FromProto(const v1::Flow& flow) {
  return {.codec = CodecSpec(flow.codec()),
          .bytes = flow.bytes(),
          .bits_per_second = flow.bits_per_second(),
          .latency_seconds = flow.latency_seconds()};
}

static v1::Edge::Kind ToProto(EdgeKind kind) {
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

static EdgeKind FromProto(v1::Edge::Kind kind) {
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

static v1::Edge ToProto(const Edge& edge) {
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

static Edge FromProto(const v1::Edge& edge) {
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
  return AllOf<Endpoint>(endpoints, FromProto);
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
          .endpoints = AllOf<Endpoint>(cell.endpoints(), FromProto),
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
          .cells = AllOf<Cell>(assignment.cells(), FromProto),
          .edges = AllOf<Edge>(assignment.edges(), FromProto)};
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
          .cells = AllOf<CellEstimate>(plan.cells(), FromProto),
          .edges = AllOf<EdgeEstimate>(plan.edges(), FromProto),
          .prediction = FromProto(plan.prediction()),
          .explanation = plan.explanation(),
          .retunes = plan.retunes(),
          .retune_reason = plan.retune_reason()};
}

}  // namespace longhaul
