// Plans of runs with several replicas of the pipeline: each is planned as a run of its own, all
// with the same split, and what replicas send each other is added. Pure.
#ifndef LONGHAUL_COORDINATOR_PLANNER_REPLICAS_H_
#define LONGHAUL_COORDINATOR_PLANNER_REPLICAS_H_

#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "base/status.h"
#include "coordinator/planner/planner.h"
#include "run/model/parameter.h"
#include "run/plan/plan.h"
#include "transport/replicas/layout.h"

namespace longhaul::coordinator {

// MakePlan's, for spec.replicas.count above 1. Its workers stand as cells do: replica by replica,
// stage by stage.
StatusOr<Plan> MakePlanOfReplicas(const PlanRequest& request, const std::stop_token& stop);

// What a stage holds.
std::vector<model::PlacedParameter> ParametersOf(const RunSpec& spec, uint32_t vocabulary,
                                                 const LayerRange& layers, const Roles& roles);
// What the replicas of a stage exchange, and in which parts.
StatusOr<replicas::Layout> LayoutOf(const RunSpec& spec, uint32_t vocabulary,
                                    const LayerRange& layers, const Roles& roles);

// Of each stage, which are alike in all replicas.
StatusOr<std::vector<replicas::Layout>> LayoutsOf(const RunSpec& spec,
                                                  const Assignment& assignment);

// How many replicas an assignment has.
uint32_t ReplicasOf(const Assignment& assignment);
// One replica of a plan as a plan of its own: its cells, and the edges among these.
Plan ReplicaOf(const Plan& plan, uint32_t replica);

// The most bytes that a replica of a stage sends another one in an exchange, without headers.
StatusOr<uint64_t> ExchangeBytes(const RunSpec& spec, uint32_t vocabulary, const LayerRange& layers,
                                 const Roles& roles);

// A step of all replicas, on the network and with the depths that the plan has. Where replicas
// exchange once in some steps, what is said of a step is that part of it.
struct ReplicasStep {
  uint32_t slowest = 0;         // the replica whose passes take longest
  double passes_seconds = 0;    // of that one, with no exchange behind them
  double exchange_seconds = 0;  // by which exchanging makes a step longer
  double step_seconds = 0;
  // As Prediction's. The floor counts what an interface carries of passes and of the exchange. The
  // bound has the exchange of the first stage behind the passes, but for the last backward there,
  // which it may overlap; the other stages' may hide behind passes.
  double lower_bound_seconds = 0;
  std::string bottleneck;
  double floor_seconds = 0;
  std::string busiest;
  uint64_t busiest_bytes = 0;

  // All of it that a prediction has.
  void Set(Prediction* prediction) const;
};
// kCancelled once `stop` is requested.
StatusOr<ReplicasStep> PredictReplicas(const Plan& plan, const RunSpec& spec,
                                       const std::stop_token& stop = {});

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_PLANNER_REPLICAS_H_
