#include "run/plan/chain.h"

namespace longhaul::chain {

std::vector<Edge> MakeEdges(uint32_t replica, uint32_t stages, EdgeId first) {
  std::vector<Edge> edges;
  for (uint32_t boundary = 0; boundary < Boundaries(stages); ++boundary) {
    Edge& edge = edges.emplace_back();
    edge.id = EdgeId(first.value() + boundary);
    edge.kind = EdgeKind::kActivations;
    edge.from = {replica, UpperStage(boundary)};
    edge.to = {replica, LowerStage(boundary)};
  }
  return edges;
}

}  // namespace longhaul::chain
