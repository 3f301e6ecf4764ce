// A pipeline is a chain: the only module in which a neighbour follows from a number. Whoever has an
// assignment follows its edges instead; what is left for these functions are plans in the making
// and the simulator's arrays, in which stage s and boundary b have the places s and b. Pure.
//
//   stage 0 --boundary 0-- stage 1 --boundary 1-- stage 2
#ifndef LONGHAUL_RUN_PLAN_CHAIN_H_
#define LONGHAUL_RUN_PLAN_CHAIN_H_

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
// Where a cell stands in an assignment whose replicas have so many stages: replica by replica.
constexpr size_t PlaceOf(const CellId& id, uint32_t stages) {
  return size_t{id.replica} * stages + id.stage;
}
// How many boundaries a stage in the middle of the longest way has: 0, 1 or 2.
constexpr uint32_t MostBoundariesOfAStage(uint32_t stages) {
  const uint32_t boundaries = Boundaries(stages);
  return boundaries < 2 ? boundaries : 2;
}

// The edges of so many replicas, numbered in this order, with nothing but their ends: of each
// replica those of kActivations, and behind them, with `tied`, that of kTied from the first of
// several stages to the last; then those of kReplicas, stage by stage, between any two replicas,
// the lower one first.
std::vector<Edge> MakeEdges(uint32_t replicas, uint32_t stages, bool tied = false);

}  // namespace longhaul::chain

#endif  // LONGHAUL_RUN_PLAN_CHAIN_H_
