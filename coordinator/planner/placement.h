// Which workers hold the stages of a pipeline, or of several replicas of it, in which order, and
// how many layers each stage has, by the step time that the simulator predicts. Pure; knows
// numbers, not workers.
//
//   PlacementProblem problem = ...;                 // every candidate, every pair
//   LH_ASSIGN_OR_RETURN(Placement best, Place(problem, {.seed = 7, .stop = stop}));
//   for (uint32_t worker : best.replicas[0].workers) ...   // places in problem.workers
//
// A step of several replicas is the passes of the slowest one and the exchange of the slowest stage
// behind them. So workers are wanted near each other along a chain and across the replicas of a
// stage.
//
// Small problems are solved exactly, by branch and bound on simulated steps (placement_exact.cc).
// Others by local search on the lower bound of a step, from many starts (placement_search.cc); the
// best ones are then simulated, and layers moved between their stages while that helps.
#ifndef LONGHAUL_COORDINATOR_PLANNER_PLACEMENT_H_
#define LONGHAUL_COORDINATOR_PLANNER_PLACEMENT_H_

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <vector>

#include "base/status.h"
#include "run/file/run_spec.h"
#include "run/plan/chain.h"
#include "run/schedule/simulator.h"

namespace longhaul::coordinator {

// Where a stage stands in its chain.
enum class ChainRole : uint8_t { kFirst, kMiddle, kLast, kOnly };
inline constexpr size_t kChainRoles = 4;
constexpr ChainRole RoleAt(uint32_t place, uint32_t stages) {
  if (stages == 1) return ChainRole::kOnly;
  return chain::IsFirst(place)          ? ChainRole::kFirst
         : chain::IsLast(place, stages) ? ChainRole::kLast
                                        : ChainRole::kMiddle;
}

// A worker as a stage with some number of layers. All times in seconds.
struct StageOption {
  double forward = 0, backward = 0;  // one microbatch
  double optimizer = 0;              // a step
  // Microbatches in flight that the worker's memory holds. 0: the stage does not fit.
  uint32_t depth = 0;
};

struct PlaceableWorker {
  // By role and by layers less one; a missing entry does not fit. Times grow with layers.
  std::array<std::vector<StageOption>, kChainRoles> options;
  // Goodput of its interface.
  double egress_bytes_per_second = schedule::kUnlimited;
  double ingress_bytes_per_second = schedule::kUnlimited;
  // What it sends of each microbatch, headers included, and what its codec thread takes.
  double down_bytes = 0, up_bytes = 0;
  double down_encode = 0, down_decode = 0, up_encode = 0, up_decode = 0;
};

// From one worker to another, beside what their interfaces can do.
struct PairCost {
  double bytes_per_second = schedule::kUnlimited;
  double latency = 0;         // one way
  bool may_be_joined = true;  // by a boundary; both ways alike
  bool may_hold_tied = true;  // the one first, the other last, of a tied matrix
  bool may_exchange = true;   // the same stage of two replicas; both ways alike
};

// What replicas of a stage send each other once their passes have ended.
struct ExchangeSize {
  // From one replica to each other one, headers included; by role and by layers less one.
  std::array<std::vector<double>, kChainRoles> bytes;
  uint32_t every = 1;     // in so many steps there is one exchange
  uint32_t messages = 0;  // of an exchange, each of which waits for the one before
};

struct PlacementProblem {
  ScheduleKind schedule = ScheduleKind::kLinkAware;
  SendOrder send_order = SendOrder::kAuto;
  uint32_t microbatches = 1;
  uint32_t replicas = 1;
  uint32_t stages = 1;  // of each
  uint32_t layers = 1;
  std::vector<PlaceableWorker> workers;  // in the order of their names
  std::vector<PairCost> pairs;           // [from * workers.size() + to]
  // Bytes of a tied matrix that the first stage and the last one send each other in a step.
  std::optional<std::array<double, 2>> tied_bytes;
  ExchangeSize exchange;  // of several replicas

  const PairCost& Pair(uint32_t from, uint32_t to) const {
    return pairs[from * workers.size() + to];
  }
};

// One replica of the pipeline, stage by stage.
struct PlacedChain {
  std::vector<uint32_t> workers;  // places in PlacementProblem::workers
  std::vector<uint32_t> layers;
  friend bool operator==(const PlacedChain&, const PlacedChain&) = default;
};

// All of a run, which have the same layers at the same stage.
using PlacedReplicas = std::vector<PlacedChain>;

struct Placement {
  PlacedReplicas replicas;
  double step_seconds = 0;  // simulated
  bool is_exact = false;    // no others have a shorter simulated step
  uint64_t moves = 0;       // that were judged by the bound
  uint32_t descents = 0;    // of the local search
};

// How much of a search is done, 0 to 1, and the shortest step so far by the bound.
using PlacementProgress = std::function<void(double share, double step_seconds)>;

struct PlacementOptions {
  uint64_t seed = 1;
  // Judged by the bound. A count and not a time, so that all machines find the same.
  // Small problems take fewer.
  uint64_t most_moves = 30'000'000;
  // Of the simulations, in schedule::WorkOf's unit.
  uint64_t most_work = 4'000'000;
  // A part of the moves and of the work, for a step to compare with others: from starts that are
  // good more often than others, which a search with more time does not need.
  bool trial = false;
  // Above 0: so many descents from random replicas, and nothing else; to compare with.
  uint32_t random_restarts = 0;
  // Replicas with all their splits that are still tried one by one.
  double exact_up_to = 300'000;
  PlacementProgress progress;  // called now and then, on the caller's thread
  std::stop_token stop;
};

// The best replicas found. Never worse, simulated, than NameOrder. The same problem and seed have
// the same placement. kInvalidArgument for a problem that makes no sense; kFailedPrecondition where
// nothing fits or may be joined; kCancelled once `stop` is requested.
StatusOr<Placement> Place(const PlacementProblem& problem, const PlacementOptions& options = {});

// These workers in this order, replica by replica, with layers balanced by the compute of each
// stage's slowest; nullopt: they do not fit.
std::optional<PlacedReplicas> WithBalancedLayers(const PlacementProblem& problem,
                                                 const std::vector<uint32_t>& workers);
// The first workers by name.
std::optional<PlacedReplicas> NameOrder(const PlacementProblem& problem);

// The lower bound of a step, as the search ranks replicas: never above SimulatedStep. Infinite for
// those that do not fit or may not be joined.
double BoundOf(const PlacementProblem& problem, const PlacedReplicas& replicas);

// A step of replicas that fit, with the depths that memory allows and for each the better of few
// leads.
StatusOr<double> SimulatedStep(const PlacementProblem& problem, const PlacedReplicas& replicas,
                               const std::stop_token& stop = {});

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_PLANNER_PLACEMENT_H_
