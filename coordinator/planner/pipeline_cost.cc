#include "coordinator/planner/pipeline_cost.h"

#include "base/check.h"

namespace longhaul::coordinator {
namespace {

// An encoded tensor travels in chunks, each with a link header and a tensor header.
constexpr uint64_t kChunkBytes = 64 << 10;
constexpr uint64_t kHeaderBytes = 64 + 96;
// Ethernet, IPv4 and TCP with timestamps take 66 bytes of a full frame.
constexpr double kFrameBytes = 1514, kFramePayloadBytes = 1448;

}  // namespace

Network UniformNetwork(uint32_t stages, double bytes_per_second, absl::Duration latency) {
  return {.interfaces = {stages, {bytes_per_second, bytes_per_second}},
          .latencies = {stages == 0 ? 0 : stages - 1, latency}};
}

double GoodputBytesPerSecond(uint64_t bits_per_second) {
  if (bits_per_second == 0) return schedule::kUnlimited;
  return static_cast<double>(bits_per_second) / 8 * (kFramePayloadBytes / kFrameBytes);
}

uint64_t WithChunkHeaders(uint64_t bytes) {
  return bytes + (bytes + kChunkBytes - 1) / kChunkBytes * kHeaderBytes;
}

schedule::PipelineCost PipelineCostOf(const v1::Plan& plan, const RunSpec& spec,
                                      const Network& network) {
  const auto stages = static_cast<size_t>(plan.stages_size());
  const auto links = static_cast<size_t>(plan.links_size());
  LH_CHECK(network.interfaces.size() == stages, "every stage has an interface");
  LH_CHECK(network.latencies.empty() || network.latencies.size() == links,
           "every boundary has a latency, or none");
  schedule::PipelineCost cost;
  cost.schedule = spec.pipeline.schedule;
  cost.microbatches = spec.train.microbatches;
  cost.order = plan.activations_first() ? SendOrder::kActivationsFirst : SendOrder::kAsReady;
  for (size_t stage = 0; stage < stages; ++stage) {
    const v1::StagePlan& one = plan.stages(static_cast<int>(stage));
    cost.stages.push_back(
        {.forward = absl::Seconds(one.forward_seconds()),
         .backward = absl::Seconds(one.backward_seconds()),
         .optimizer = absl::Seconds(one.optimizer_seconds()),
         .egress_bytes_per_second = network.interfaces[stage].egress_bytes_per_second,
         .ingress_bytes_per_second = network.interfaces[stage].ingress_bytes_per_second,
         .depth = one.depth()});
  }
  for (size_t boundary = 0; boundary < links; ++boundary) {
    const v1::LinkPlan& link = plan.links(static_cast<int>(boundary));
    cost.boundaries.push_back(
        {.forward_bytes = static_cast<double>(WithChunkHeaders(link.forward_bytes())),
         .backward_bytes = static_cast<double>(WithChunkHeaders(link.backward_bytes())),
         .latency = network.latencies.empty() ? absl::ZeroDuration() : network.latencies[boundary],
         .forward_encode = absl::Seconds(link.forward_encode_seconds()),
         .forward_decode = absl::Seconds(link.forward_decode_seconds()),
         .backward_encode = absl::Seconds(link.backward_encode_seconds()),
         .backward_decode = absl::Seconds(link.backward_decode_seconds())});
  }
  return cost;
}

}  // namespace longhaul::coordinator
