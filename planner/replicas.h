// Plans of runs with several replicas of the pipeline (data parallelism). Each replica is planned
// as a run of its own, all with the same split of layers; then the exchange among replicas is
// added. Pure.
#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "base/status.h"
#include "planner/planner.h"
#include "run/model/parameter.h"
#include "run/plan/plan.h"
#include "transport/replicas/layout.h"

namespace longhaul::coordinator {

// As MakePlan, for spec.replicas.count above 1. The request's workers must be in the order of the
// cells: replica by replica, stage by stage. kInvalidArgument also if the number of workers is not
// a multiple of the number of replicas.
StatusOr<Plan> MakePlanOfReplicas(const PlanRequest& request, const std::stop_token& stop);

// The parameters of a stage with these layers and roles. Here and below, `vocabulary` is the number
// of the tokenizer's tokens.
std::vector<model::PlacedParameter> ParametersOf(const RunSpec& spec, uint32_t vocabulary,
                                                 const LayerRange& layers, const Roles& roles);
// Returns how the parameters of a stage are divided among its replicas for the exchange. Errors: as
// of replicas::Layout::Make, also for LayoutsOf and ExchangeBytes.
StatusOr<replicas::Layout> LayoutOf(const RunSpec& spec, uint32_t vocabulary,
                                    const LayerRange& layers, const Roles& roles);

// The layout of each stage, indexed by stage; all replicas have the same.
StatusOr<std::vector<replicas::Layout>> LayoutsOf(const RunSpec& spec,
                                                  const Assignment& assignment);

// The number of replicas of an assignment.
uint32_t ReplicasOf(const Assignment& assignment);
// Returns one replica of a plan as a plan of its own, with its cells and the edges among them but
// without prediction. CellId::replica does not change.
Plan ReplicaOf(const Plan& plan, uint32_t replica);

// Maximum bytes that one replica of a stage sends one other replica in an exchange, without
// headers.
StatusOr<uint64_t> ExchangeBytes(const RunSpec& spec, uint32_t vocabulary, const LayerRange& layers,
                                 const Roles& roles);

// A step of all replicas, with the plan's network and depths. If replicas exchange once in several
// steps, a step has its share of the exchange.
struct ReplicasStep {
  uint32_t slowest = 0;         // the replica whose passes (forwards, backwards) take longest
  double passes_seconds = 0;    // passes of the slowest replica alone
  double exchange_seconds = 0;  // how much longer the exchange makes a step
  double step_seconds = 0;
  // The next five fields mean the same as in Prediction, but include the exchange.
  // floor_seconds counts all bytes that a network interface carries for passes and exchange.
  // lower_bound_seconds is at least floor_seconds. It counts only the exchange of the first stage,
  // minus one backward, and leaves out a delayed exchange.
  double lower_bound_seconds = 0;
  std::string bottleneck;
  double floor_seconds = 0;
  std::string busiest;
  uint64_t busiest_bytes = 0;

  // Sets the fields of a prediction that this struct has.
  void Set(Prediction* prediction) const;
};
// Simulates the step of each replica, once without and once with the exchange. Also takes a plan of
// one replica; its exchange takes no time. kCancelled once `stop` is requested; other errors as of
// LayoutOf.
StatusOr<ReplicasStep> PredictReplicas(const Plan& plan, const RunSpec& spec,
                                       const std::stop_token& stop = {});

}  // namespace longhaul::coordinator
