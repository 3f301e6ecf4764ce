#include "planner/pipeline_cost.h"

#include <algorithm>

#include "base/check.h"
#include "run/plan/chain.h"

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

bool IsOf(const NetworkRates& network, const Plan& plan) {
  return network.interfaces.size() == plan.assignment.cells.size() &&
         network.interfaces.size() == plan.cells.size() &&
         network.links.size() == plan.assignment.edges.size() &&
         network.links.size() == plan.edges.size();
}

// Cells and edges stand in the places of the simulator's stages and boundaries, with a tied edge
// behind these.
bool IsOneChain(const Assignment& assignment) {
  const auto stages = static_cast<uint32_t>(assignment.cells.size());
  const bool tied = !assignment.edges.empty() && assignment.edges.back().kind == EdgeKind::kTied;
  const std::vector<Edge> expected = chain::MakeEdges(1, stages, tied);
  return std::ranges::equal(assignment.edges, expected, [&](const Edge& one, const Edge& other) {
    return one.kind == other.kind && one.from == assignment.cells[other.from.stage].id &&
           one.to == assignment.cells[other.to.stage].id;
  });
}

// The cost of a flow that crosses in this many parts.
schedule::FlowCost FlowCostOf(const Flow& flow, const FlowEstimate& estimate,
                              const FlowRates& rates, uint32_t parts) {
  return {.bytes = static_cast<double>(WithChunkHeaders(flow.bytes / parts)),
          .bytes_per_second = rates.bytes_per_second,
          .latency = rates.latency,
          .encode = absl::Seconds(estimate.encode_seconds / parts),
          .decode = absl::Seconds(estimate.decode_seconds / parts)};
}

}  // namespace

NetworkRates UniformNetwork(const Assignment& assignment, double bytes_per_second,
                            absl::Duration latency) {
  NetworkRates network;
  network.interfaces.assign(assignment.cells.size(), {bytes_per_second, bytes_per_second});
  network.links.assign(assignment.edges.size(),
                       {.forward = {.latency = latency}, .backward = {.latency = latency}});
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

NetworkRates NetworkOf(const Plan& plan) {
  NetworkRates network;
  for (const CellEstimate& cell : plan.cells) {
    network.interfaces.push_back({BytesPerSecond(cell.egress_bits_per_second),
                                  BytesPerSecond(cell.ingress_bits_per_second)});
  }
  const auto rates = [](const Flow& flow) -> FlowRates {
    return {BytesPerSecond(flow.bits_per_second), absl::Seconds(flow.latency_seconds)};
  };
  for (const Edge& edge : plan.assignment.edges) {
    network.links.push_back({rates(edge.forward), rates(edge.backward)});
  }
  return network;
}

void SetNetwork(const NetworkRates& network, Plan* plan) {
  LH_CHECK(IsOf(network, *plan), "the network of another plan");
  for (size_t c = 0; c < plan->cells.size(); ++c) {
    const InterfaceRates& rates = network.interfaces[c];
    plan->cells[c].egress_bits_per_second = BitsPerSecond(rates.egress_bytes_per_second);
    plan->cells[c].ingress_bits_per_second = BitsPerSecond(rates.ingress_bytes_per_second);
  }
  const auto set = [](const FlowRates& rates, Flow* flow) {
    flow->bits_per_second = BitsPerSecond(rates.bytes_per_second);
    flow->latency_seconds = absl::ToDoubleSeconds(rates.latency);
  };
  for (size_t e = 0; e < network.links.size(); ++e) {
    set(network.links[e].forward, &plan->assignment.edges[e].forward);
    set(network.links[e].backward, &plan->assignment.edges[e].backward);
  }
}

double AloneBytesPerSecond(const NetworkRates& network, const Assignment& assignment, size_t edge,
                           Direction direction) {
  const InterfaceRates& from = network.interfaces[assignment.PlaceOf(assignment.edges[edge].from)];
  const InterfaceRates& to = network.interfaces[assignment.PlaceOf(assignment.edges[edge].to)];
  const LinkRates& link = network.links[edge];
  return direction == Direction::kForward
             ? std::min({from.egress_bytes_per_second, to.ingress_bytes_per_second,
                         link.forward.bytes_per_second})
             : std::min({to.egress_bytes_per_second, from.ingress_bytes_per_second,
                         link.backward.bytes_per_second});
}

schedule::PipelineCost PipelineCostOf(const Plan& plan, const RunSpec& spec,
                                      const NetworkRates& network) {
  LH_CHECK(IsOf(network, plan), "the network of another plan");
  LH_CHECK(IsOneChain(plan.assignment), "the simulator knows one replica, stage by stage");
  schedule::PipelineCost cost;
  cost.schedule = spec.pipeline.schedule;
  cost.microbatches = spec.train.microbatches;
  cost.slices = plan.assignment.slices;
  for (size_t s = 0; s < plan.cells.size(); ++s) {
    const Setting& setting = plan.assignment.cells[s].setting;
    const CellEstimate& cell = plan.cells[s];
    cost.stages.push_back(
        {.forward = absl::Seconds(cell.forward_seconds / cost.slices),
         .backward = absl::Seconds(cell.backward_seconds / cost.slices),
         .optimizer = absl::Seconds(cell.optimizer_seconds),
         .egress_bytes_per_second = network.interfaces[s].egress_bytes_per_second,
         .ingress_bytes_per_second = network.interfaces[s].ingress_bytes_per_second,
         .depth = setting.depth,
         .activation_lead = setting.activation_lead});
  }
  for (size_t e = 0; e < plan.edges.size(); ++e) {
    const Edge& edge = plan.assignment.edges[e];
    const uint32_t parts = edge.kind == EdgeKind::kTied ? 1 : cost.slices;
    const schedule::BoundaryCost both = {
        FlowCostOf(edge.forward, plan.edges[e].forward, network.links[e].forward, parts),
        FlowCostOf(edge.backward, plan.edges[e].backward, network.links[e].backward, parts)};
    if (edge.kind == EdgeKind::kTied) {
      cost.tied = both;
    } else {
      cost.boundaries.push_back(both);
    }
  }
  return cost;
}

}  // namespace longhaul::coordinator
