// A pipeline is a chain of stages. Only this module derives a neighbour from an index. Code with an
// assignment follows its edges instead; these functions are for unfinished plans and for the
// simulator's arrays, in which stage s and boundary b have the indices s and b. Pure.
//
//   stage 0 --boundary 0-- stage 1 --boundary 1-- stage 2
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "run/plan/plan.h"

namespace longhaul::chain {

constexpr uint32_t Boundaries(uint32_t stages) {
  return stages == 0 ? 0 : stages - 1;
}
// The stages at the two ends of a boundary.
constexpr uint32_t UpperStage(uint32_t boundary) {
  return boundary;
}
constexpr uint32_t LowerStage(uint32_t boundary) {
  return boundary + 1;
}
// The boundaries of a stage. The first stage has none above, the last one none below.
constexpr uint32_t BoundaryAbove(uint32_t stage) {
  return stage - 1;
}
constexpr uint32_t BoundaryBelow(uint32_t stage) {
  return stage;
}
constexpr bool IsFirst(uint32_t stage) {
  return stage == 0;
}
constexpr bool IsLast(uint32_t stage, uint32_t stages) {
  return stage + 1 == stages;
}
constexpr uint32_t LastStage(uint32_t stages) {
  return stages - 1;
}
// The stages from `stage` to the last one, both counted.
constexpr uint32_t StagesFrom(uint32_t stage, uint32_t stages) {
  return stages - stage;
}
// The index of a cell in an assignment whose replicas have `stages` stages: replica by replica.
constexpr size_t PlaceOf(const CellId& id, uint32_t stages) {
  return size_t{id.replica} * stages + id.stage;
}
// The maximum number of boundaries of a stage: 0, 1 or 2.
constexpr uint32_t MostBoundariesOfAStage(uint32_t stages) {
  const uint32_t boundaries = Boundaries(stages);
  return boundaries < 2 ? boundaries : 2;
}

// Returns all edges of `replicas` replicas, with ids in this order and only their ends set. For
// each replica: its kActivations edges, then, with `tied` and several stages, one kTied edge from
// the first stage to the last. After all replicas: the kReplicas edges, stage by stage, between any
// two replicas, from the lower one to the higher.
std::vector<Edge> MakeEdges(uint32_t replicas, uint32_t stages, bool tied = false);

}  // namespace longhaul::chain
