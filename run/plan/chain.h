// A pipeline is a chain of stages, with a boundary between every two neighbours. Only this module
// computes neighbours from indices, for unfinished plans and for the simulator's arrays by stage
// and by boundary. Code that has an Assignment must follow the assignment's edges instead. Pure;
// arguments are not checked.
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
// The stages at the two ends of a boundary. The upper one is nearer to stage 0.
constexpr uint32_t UpperStage(uint32_t boundary) {
  return boundary;
}
constexpr uint32_t LowerStage(uint32_t boundary) {
  return boundary + 1;
}
// The boundaries of a stage. Do not ask for one above the first stage or below the last.
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
// `stages` must be at least 1.
constexpr uint32_t LastStage(uint32_t stages) {
  return stages - 1;
}
// The stages from `stage` to the last one, both counted.
constexpr uint32_t StagesFrom(uint32_t stage, uint32_t stages) {
  return stages - stage;
}
// The index of a cell (one stage of one replica) in Assignment::cells, which are sorted by replica
// and then by stage. Every replica has `stages` stages.
constexpr size_t PlaceOf(const CellId& id, uint32_t stages) {
  return size_t{id.replica} * stages + id.stage;
}
// The maximum number of boundaries of a stage: 0, 1 or 2.
constexpr uint32_t MostBoundariesOfAStage(uint32_t stages) {
  const uint32_t boundaries = Boundaries(stages);
  return boundaries < 2 ? boundaries : 2;
}

// Returns all edges of `replicas` replicas; only `id`, `kind`, `from` and `to` are set. The ids
// count from 0, in this order: for each replica its kActivations edges and, if `tied` and there are
// several stages, one kTied edge from its first stage to its last. Then for each stage one
// kReplicas edge between every two replicas, from the lower replica to the higher. These are sorted
// by the higher replica, and then by the lower.
std::vector<Edge> MakeEdges(uint32_t replicas, uint32_t stages, bool tied = false);

}  // namespace longhaul::chain
