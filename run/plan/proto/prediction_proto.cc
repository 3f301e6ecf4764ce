#include "run/plan/proto/prediction_proto.h"

#include "run/plan/proto/plan_proto.h"
#include "run/plan/proto/repeated.h"

namespace longhaul {

static v1::GroupEstimate ToProto(const GroupEstimate& estimate) {
  v1::GroupEstimate out;
  out.set_forward_collective(estimate.forward_collective);
  out.set_backward_collective(estimate.backward_collective);
  *out.mutable_sent() = longhaul::ToProto(estimate.sent);
  if (estimate.collective_seconds) out.set_collective_seconds(*estimate.collective_seconds);
  out.set_even_share_seconds(estimate.even_share_seconds);
  return out;
}

static GroupEstimate FromProto(const v1::GroupEstimate& estimate) {
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

static v1::FlowEstimate ToProto(const FlowEstimate& estimate) {
  v1::FlowEstimate out;
  out.set_encode_seconds(estimate.encode_seconds);
  out.set_decode_seconds(estimate.decode_seconds);
  return out;
}

static FlowEstimate FromProto(const v1::FlowEstimate& estimate) {
  return {.encode_seconds = estimate.encode_seconds(), .decode_seconds = estimate.decode_seconds()};
}

static v1::PredictedCell ToProto(const PredictedCell& cell) {
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

static PredictedCell FromProto(const v1::PredictedCell& cell) {
  return {.compute_seconds = cell.compute_seconds(),
          .codec_seconds = cell.codec_seconds(),
          .wait_above_seconds = cell.wait_above_seconds(),
          .wait_below_seconds = cell.wait_below_seconds(),
          .optimizer_seconds = cell.optimizer_seconds(),
          .egress_share = cell.egress_share(),
          .ingress_share = cell.ingress_share()};
}

static v1::PredictedFlow ToProto(const PredictedFlow& flow) {
  v1::PredictedFlow out;
  out.set_busy_share(flow.busy_share);
  out.set_rate_share(flow.rate_share);
  return out;
}

static PredictedFlow FromProto(const v1::PredictedFlow& flow) {
  return {.busy_share = flow.busy_share(), .rate_share = flow.rate_share()};
}

static v1::CodecPrediction ToProto(const CodecPrediction& row) {
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

static CodecPrediction FromProto(const v1::CodecPrediction& row) {
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

static v1::RanksPrediction ToProto(const RanksPrediction& row) {
  v1::RanksPrediction out;
  out.set_tensor(row.tensor);
  out.set_expert(row.expert);
  out.set_step_seconds(row.step_seconds);
  out.set_memory_bytes(row.memory_bytes);
  out.set_refused(row.refused);
  return out;
}

static RanksPrediction FromProto(const v1::RanksPrediction& row) {
  return {.tensor = row.tensor(),
          .expert = std::max(row.expert(), 1u),
          .step_seconds = row.step_seconds(),
          .memory_bytes = row.memory_bytes(),
          .refused = row.refused()};
}

static v1::SlicesPrediction ToProto(const SlicesPrediction& row) {
  v1::SlicesPrediction out;
  out.set_slices(row.slices);
  out.set_step_seconds(row.step_seconds);
  out.set_refused(row.refused);
  return out;
}

static SlicesPrediction FromProto(const v1::SlicesPrediction& row) {
  return {.slices = row.slices(), .step_seconds = row.step_seconds(), .refused = row.refused()};
}

static v1::ReplicasPrediction ToProto(const ReplicasPrediction& row) {
  v1::ReplicasPrediction out;
  out.set_replicas(row.replicas);
  out.set_stages(row.stages);
  out.set_step_seconds(row.step_seconds);
  out.set_refused(row.refused);
  return out;
}

static ReplicasPrediction FromProto(const v1::ReplicasPrediction& row) {
  return {.replicas = row.replicas(),
          .stages = row.stages(),
          .step_seconds = row.step_seconds(),
          .refused = row.refused()};
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

static v1::PredictedEdge ToProto(const PredictedEdge& edge) {
  v1::PredictedEdge out;
  *out.mutable_forward() = ToProto(edge.forward);
  *out.mutable_backward() = ToProto(edge.backward);
  return out;
}

static PredictedEdge FromProto(const v1::PredictedEdge& edge) {
  return {FromProto(edge.forward()), FromProto(edge.backward())};
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
  out.cells = AllOf<PredictedCell>(prediction.cells(), FromProto);
  out.edges = AllOf<PredictedEdge>(prediction.edges(), FromProto);
  if (prediction.has_assumed_line_bits_per_second()) {
    out.assumed_line_bits_per_second = prediction.assumed_line_bits_per_second();
  }
  if (prediction.has_assumed_delay_seconds()) {
    out.assumed_delay_seconds = prediction.assumed_delay_seconds();
  }
  out.order_reason = prediction.order_reason();
  out.cut_short = prediction.cut_short();
  out.codecs = AllOf<CodecPrediction>(prediction.codecs(), FromProto);
  out.ranks = AllOf<RanksPrediction>(prediction.ranks(), FromProto);
  out.floor_seconds = prediction.floor_seconds();
  out.busiest = prediction.busiest();
  out.busiest_bytes = prediction.busiest_bytes();
  out.slices = AllOf<SlicesPrediction>(prediction.slices(), FromProto);
  out.replicas = AllOf<ReplicasPrediction>(prediction.replicas(), FromProto);
  return out;
}

}  // namespace longhaul
