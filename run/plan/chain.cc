#include "run/plan/chain.h"

namespace longhaul::chain {

std::vector<Edge> MakeEdges(uint32_t replicas, uint32_t stages, bool tied) {
  std::vector<Edge> edges;
  const auto add = [&edges](EdgeKind kind, CellId from, CellId to) {
    const EdgeId id(static_cast<uint32_t>(edges.size()));
    Edge& edge = edges.emplace_back();
    edge.id = id;
    edge.kind = kind;
    edge.from = from;
    edge.to = to;
  };
  for (uint32_t replica = 0; replica < replicas; ++replica) {
    for (uint32_t boundary = 0; boundary < Boundaries(stages); ++boundary) {
      add(EdgeKind::kActivations, {replica, UpperStage(boundary)}, {replica, LowerStage(boundary)});
    }
    if (tied && stages > 1) {
      add(EdgeKind::kTied, {replica, 0}, {replica, LastStage(stages)});
    }
  }
  for (uint32_t stage = 0; stage < stages; ++stage) {
    for (uint32_t higher = 0; higher < replicas; ++higher) {
      for (uint32_t lower = 0; lower < higher; ++lower) {
        add(EdgeKind::kReplicas, {lower, stage}, {higher, stage});
      }
    }
  }
  return edges;
}

}  // namespace longhaul::chain
