#include "coordinator/planner/pipeline_cost.h"

#include "base/check.h"

namespace longhaul::coordinator {
namespace {

// An encoded tensor travels in chunks, each with a link header and a tensor header.
constexpr uint64_t kLinkHeaderBytes = 64, kTensorHeaderBytes = 96;
constexpr uint64_t kChunkBytes = (64 << 10) - kTensorHeaderBytes;
constexpr uint64_t kHeaderBytes = kLinkHeaderBytes + kTensorHeaderBytes;
// Ethernet, IPv4 and TCP with timestamps take 66 bytes of a full frame.
constexpr double kFrameBytes = 1514, kFramePayloadBytes = 1448;

double BitsPerSecond(double bytes_per_second) {
  return bytes_per_second == schedule::kUnlimited ? 0 : bytes_per_second * 8;
}

}  // namespace

NetworkRates UniformNetwork(uint32_t stages, double bytes_per_second, absl::Duration latency) {
  NetworkRates network;
  network.interfaces.assign(stages, {bytes_per_second, bytes_per_second});
  network.links.assign(stages == 0 ? 0 : stages - 1,
                       {.forward_latency = latency, .backward_latency = latency});
  return network;
}

double BytesPerSecond(double bits_per_second) {
  return bits_per_second > 0 ? bits_per_second / 8 : schedule::kUnlimited;
}

double GoodputBytesPerSecond(uint64_t bits_per_second) {
  if (bits_per_second == 0) return schedule::kUnlimited;
  return static_cast<double>(bits_per_second) / 8 * (kFramePayloadBytes / kFrameBytes);
}

uint64_t WithChunkHeaders(uint64_t bytes) {
  return bytes + (bytes + kChunkBytes - 1) / kChunkBytes * kHeaderBytes;
}

NetworkRates NetworkOf(const v1::Plan& plan) {
  const v1::Prediction& prediction = plan.prediction();
  NetworkRates network;
  network.interfaces.resize(static_cast<size_t>(plan.stages_size()));
  for (int s = 0; s < plan.stages_size(); ++s) {
    InterfaceRates& rates = network.interfaces[static_cast<size_t>(s)];
    if (s < prediction.egress_bits_per_second_size()) {
      rates.egress_bytes_per_second = BytesPerSecond(prediction.egress_bits_per_second(s));
    }
    if (s < prediction.ingress_bits_per_second_size()) {
      rates.ingress_bytes_per_second = BytesPerSecond(prediction.ingress_bits_per_second(s));
    }
  }
  for (const v1::LinkPlan& link : plan.links()) {
    network.links.push_back(
        {.forward_bytes_per_second = BytesPerSecond(link.forward_bits_per_second()),
         .backward_bytes_per_second = BytesPerSecond(link.backward_bits_per_second()),
         .forward_latency = absl::Seconds(link.forward_latency_seconds()),
         .backward_latency = absl::Seconds(link.backward_latency_seconds())});
  }
  return network;
}

void SetNetwork(const NetworkRates& network, v1::Plan* plan) {
  v1::Prediction& prediction = *plan->mutable_prediction();
  prediction.clear_egress_bits_per_second();
  prediction.clear_ingress_bits_per_second();
  for (const InterfaceRates& rates : network.interfaces) {
    prediction.add_egress_bits_per_second(BitsPerSecond(rates.egress_bytes_per_second));
    prediction.add_ingress_bits_per_second(BitsPerSecond(rates.ingress_bytes_per_second));
  }
  LH_CHECK(network.links.size() == static_cast<size_t>(plan->links_size()),
           "the network of another plan");
  for (int b = 0; b < plan->links_size(); ++b) {
    const LinkRates& rates = network.links[static_cast<size_t>(b)];
    v1::LinkPlan& link = *plan->mutable_links(b);
    link.set_forward_bits_per_second(BitsPerSecond(rates.forward_bytes_per_second));
    link.set_backward_bits_per_second(BitsPerSecond(rates.backward_bytes_per_second));
    link.set_forward_latency_seconds(absl::ToDoubleSeconds(rates.forward_latency));
    link.set_backward_latency_seconds(absl::ToDoubleSeconds(rates.backward_latency));
  }
}

schedule::PipelineCost PipelineCostOf(const v1::Plan& plan, const RunSpec& spec,
                                      const NetworkRates& network) {
  const auto stages = static_cast<size_t>(plan.stages_size());
  const auto links = static_cast<size_t>(plan.links_size());
  LH_CHECK(network.interfaces.size() == stages && network.links.size() == links,
           "the network of another plan");
  schedule::PipelineCost cost;
  cost.schedule = spec.pipeline.schedule;
  cost.microbatches = spec.train.microbatches;
  for (size_t stage = 0; stage < stages; ++stage) {
    const v1::StagePlan& one = plan.stages(static_cast<int>(stage));
    cost.stages.push_back(
        {.forward = absl::Seconds(one.forward_seconds()),
         .backward = absl::Seconds(one.backward_seconds()),
         .optimizer = absl::Seconds(one.optimizer_seconds()),
         .egress_bytes_per_second = network.interfaces[stage].egress_bytes_per_second,
         .ingress_bytes_per_second = network.interfaces[stage].ingress_bytes_per_second,
         .depth = one.depth(),
         .activation_lead = one.activation_lead()});
  }
  for (size_t boundary = 0; boundary < links; ++boundary) {
    const v1::LinkPlan& link = plan.links(static_cast<int>(boundary));
    cost.boundaries.push_back(
        {.forward_bytes = static_cast<double>(WithChunkHeaders(link.forward_bytes())),
         .backward_bytes = static_cast<double>(WithChunkHeaders(link.backward_bytes())),
         .forward_bytes_per_second = network.links[boundary].forward_bytes_per_second,
         .backward_bytes_per_second = network.links[boundary].backward_bytes_per_second,
         .forward_latency = network.links[boundary].forward_latency,
         .backward_latency = network.links[boundary].backward_latency,
         .forward_encode = absl::Seconds(link.forward_encode_seconds()),
         .forward_decode = absl::Seconds(link.forward_decode_seconds()),
         .backward_encode = absl::Seconds(link.backward_encode_seconds()),
         .backward_decode = absl::Seconds(link.backward_decode_seconds())});
  }
  return cost;
}

}  // namespace longhaul::coordinator
