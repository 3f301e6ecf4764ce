#include "run/plan/chain.h"

namespace longhaul::chain {

std::vector<Edge> MakeEdges(uint32_t replica, uint32_t stages, EdgeId first, bool tied) {
  std::vector<Edge> edges;
  for (uint32_t boundary = 0; boundary < Boundaries(stages); ++boundary) {
    Edge& edge = edges.emplace_back();
    edge.id = EdgeId(first.value() + boundary);
    edge.kind = EdgeKind::kActivations;
    edge.from = {replica, UpperStage(boundary)};
    edge.to = {replica, LowerStage(boundary)};
  }
  if (tied && stages > 1) {
    Edge& edge = edges.emplace_back();
    edge.id = EdgeId(first.value() + Boundaries(stages));
    edge.kind = EdgeKind::kTied;
    edge.from = {replica, 0};
    edge.to = {replica, LastStage(stages)};
  }
  return edges;
}

}  // namespace longhaul::chain
