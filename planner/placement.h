// Chooses which workers hold the stages of a pipeline (or of several data-parallel replicas of the
// pipeline), in which order, and how many layers each stage has, so that the simulated step is
// short. Pure; works on numbers only; any thread.
//
//   PlacementProblem problem = ...;                 // every candidate, every pair
//   LH_ASSIGN_OR_RETURN(Placement best, Place(problem, {.seed = 7, .stop = stop}));
//   for (uint32_t worker : best.replicas[0].workers) ...   // indices into problem.workers
//
// A step of several replicas lasts as long as the passes (all forwards and backwards) of the
// slowest replica and, after them, the exchange of gradients of the slowest stage. So links should
// be fast between neighbours in a replica, and between the replicas of a stage.
//
// A local search on the lower bound of a step begins at many starts (placement_search.cc). Its best
// results are simulated, and layers are moved between their stages while that helps. For small
// problems a branch and bound on simulated steps then finds the best placement of all
// (placement_exact.cc).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <vector>

#include "base/status.h"
#include "run/file/run_spec.h"
#include "run/plan/chain.h"
#include "run/schedule/search_limit.h"
#include "run/schedule/simulator.h"

namespace longhaul::coordinator {

// The role of a stage in its chain.
enum class ChainRole : uint8_t { kFirst, kMiddle, kLast, kOnly };
inline constexpr size_t kChainRoles = 4;
// `place`: the stage's index in its chain, below `stages`.
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
  // Indexed by role and by (layers - 1). A missing entry: the stage does not fit. Times must not
  // fall as layers grow.
  std::array<std::vector<StageOption>, kChainRoles> options;
  // Goodput of its interface; kUnlimited: unknown, or no limit.
  double egress_bytes_per_second = schedule::kUnlimited;
  double ingress_bytes_per_second = schedule::kUnlimited;
  // For each microbatch: bytes that the worker sends, headers included, and seconds of its codec
  // thread. Down: activations, up: gradients.
  double down_bytes = 0, up_bytes = 0;
  double down_encode = 0, down_decode = 0, up_encode = 0, up_decode = 0;
};

// Limits from one worker to another, in addition to their interfaces' limits.
struct PairCost {
  double bytes_per_second = schedule::kUnlimited;
  double latency = 0;         // seconds, one way
  bool may_be_joined = true;  // may be neighbours; symmetric
  bool may_hold_tied = true;  // may share a tied matrix: `from` as first stage, `to` as last one
  bool may_exchange = true;   // may hold the same stage of two replicas; symmetric
};

// The bytes that replicas of a stage send each other once their passes have ended.
struct ExchangeSize {
  // Bytes that one replica sends to every other replica, headers included; indexed by role and by
  // (layers - 1).
  std::array<std::vector<double>, kChainRoles> bytes;
  uint32_t every = 1;     // steps from one exchange to the next
  uint32_t messages = 0;  // messages of an exchange that wait for each other; each costs a latency
};

struct PlacementProblem {
  ScheduleKind schedule = ScheduleKind::kLinkAware;
  SendOrder send_order = SendOrder::kAuto;
  uint32_t microbatches = 1;
  uint32_t replicas = 1;
  uint32_t stages = 1;  // of each replica
  uint32_t layers = 1;
  std::vector<PlaceableWorker> workers;  // in the order of their names
  std::vector<PairCost> pairs;           // [from * workers.size() + to]
  // Bytes of a tied matrix in a step: [0] from the first stage to the last, [1] back. nullopt: the
  // model has no tied matrix, or one stage.
  std::optional<std::array<double, 2>> tied_bytes;
  ExchangeSize exchange;  // ignored with one replica

  const PairCost& Pair(uint32_t from, uint32_t to) const {
    return pairs[from * workers.size() + to];
  }
};

// One replica of the pipeline, stage by stage.
struct PlacedChain {
  std::vector<uint32_t> workers;  // indices into PlacementProblem::workers
  std::vector<uint32_t> layers;   // number of layers of each stage
  friend bool operator==(const PlacedChain&, const PlacedChain&) = default;
};

// All replicas of a run; they have the same layers at the same stage.
using PlacedReplicas = std::vector<PlacedChain>;

struct Placement {
  PlacedReplicas replicas;
  double step_seconds = 0;  // simulated
  bool is_exact = false;    // the exact search proved that no placement has a shorter step
  uint64_t moves = 0;       // changes of a placement that the bound judged
  uint32_t descents = 0;    // descents of the local search (placement_descent.h)
};

// Called with the share of a search that is done, 0 to 1, and the shortest bound of a step so far
// in seconds (infinity: no possible placement yet).
using PlacementProgress = std::function<void(double share, double step_seconds)>;

struct PlacementOptions {
  uint64_t seed = 1;
  // Maximum number of moves judged by the bound. A count, not a time, so that all machines find the
  // same placement. Small problems take fewer.
  uint64_t most_moves = 30'000'000;
  // Maximum work of the simulations, in units of schedule::WorkOf.
  uint64_t most_work = 4'000'000;
  // A short search, enough to compare this problem with others. It begins at greedy starts, which
  // are more often good than random ones; a longer search does not need them.
  bool trial = false;
  // Above 0: makes only this many descents from random placements, a baseline to judge the search.
  // 0: the normal search.
  uint32_t random_restarts = 0;
  // The exact search runs only if there are at most this many placements: orders of workers times
  // divisions of the layers.
  double exact_up_to = 300'000;
  PlacementProgress progress;  // called from time to time on Place()'s thread; may be empty
  // Once it is over, the search ends as soon as it knows a possible placement.
  schedule::SearchLimit limit;
  std::stop_token stop;
};

// Returns the best placement found. Its simulated step is never longer than that of NameOrder. The
// same problem and options give the same placement, unless options.limit ends the search.
// kInvalidArgument for an invalid problem; kFailedPrecondition if no placement is possible;
// kCancelled once `stop` is requested.
StatusOr<Placement> Place(const PlacementProblem& problem, const PlacementOptions& options = {});

// Returns the workers (indices, replicas x stages of them) in the given order, replica by replica,
// with layers balanced by the compute of each stage's slowest worker. nullopt: the layers do not
// fit.
std::optional<PlacedReplicas> WithBalancedLayers(const PlacementProblem& problem,
                                                 const std::vector<uint32_t>& workers);
// WithBalancedLayers of the first workers by name, in the order of their names.
std::optional<PlacedReplicas> NameOrder(const PlacementProblem& problem);

// Returns the lower bound of a step in seconds, by which the search ranks placements: never above
// SimulatedStep. Infinite for placements that are not possible.
double BoundOf(const PlacementProblem& problem, const PlacedReplicas& replicas);

// Returns the simulated step of a possible placement (BoundOf is finite), in seconds. Each stage
// has as many microbatches in flight as its memory allows. Each replica has the best of a few
// activation leads (PolicyOptions in run/schedule/policy.h). kCancelled once `stop` is requested.
StatusOr<double> SimulatedStep(const PlacementProblem& problem, const PlacedReplicas& replicas,
                               const std::stop_token& stop = {});

}  // namespace longhaul::coordinator
