#include "planner/placement.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "planner/chain_bound.h"
#include "planner/placement_search.h"
#include "run/schedule/policy.h"
#include "run/schedule/tune.h"
#include "transport/replicas/layout.h"

namespace longhaul::coordinator {
namespace {

// A move of layers must shorten the simulated step at least by this factor.
constexpr double kLayersGain = 0.9995;
// One part in this many of the work goes to simulations of the chains with the lowest bounds.
constexpr uint64_t kShareOfFinalists = 2;
// Moves of a search for each worker in each place.
constexpr uint64_t kMovesOfAPair = 15'000;
// A trial gets one part in this many of a search's moves and work.
constexpr uint64_t kShareOfATrial = 8;
// The cost of a move of replicas, in moves of one chain.
constexpr uint64_t kCostOfAReplicasMove = 2;

// Work of one SimulatedStep, in units of schedule::WorkOf.
uint64_t WorkOfAStep(const PlacementProblem& problem) {
  return 2 * uint64_t{problem.microbatches} * problem.stages * problem.stages * problem.replicas;
}

const StageOption* OptionOf(const PlacementProblem& problem, uint32_t worker, uint32_t layers,
                            ChainRole role) {
  const auto& options = problem.workers[worker].options[static_cast<size_t>(role)];
  if (layers == 0 || layers > options.size() || options[layers - 1].depth == 0) return nullptr;
  return &options[layers - 1];
}

schedule::FlowCost FlowBetween(double bytes, const PairCost& pair, double encode, double decode) {
  return {.bytes = bytes,
          .bytes_per_second = pair.bytes_per_second,
          .latency = absl::Seconds(pair.latency),
          .encode = absl::Seconds(encode),
          .decode = absl::Seconds(decode)};
}

schedule::PipelineCost CostOf(const PlacementProblem& problem, const PlacedChain& placed) {
  schedule::PipelineCost cost;
  cost.schedule = problem.schedule;
  cost.microbatches = problem.microbatches;
  const uint32_t stages = problem.stages;
  for (uint32_t s = 0; s < stages; ++s) {
    const PlaceableWorker& worker = problem.workers[placed.workers[s]];
    const StageOption& option =
        *OptionOf(problem, placed.workers[s], placed.layers[s], RoleAt(s, stages));
    cost.stages.push_back({.forward = absl::Seconds(option.forward),
                           .backward = absl::Seconds(option.backward),
                           .optimizer = absl::Seconds(option.optimizer),
                           .egress_bytes_per_second = worker.egress_bytes_per_second,
                           .ingress_bytes_per_second = worker.ingress_bytes_per_second,
                           .depth = option.depth});
  }
  for (uint32_t b = 0; b < chain::Boundaries(stages); ++b) {
    const uint32_t upper = placed.workers[chain::UpperStage(b)];
    const uint32_t lower = placed.workers[chain::LowerStage(b)];
    const PlaceableWorker &above = problem.workers[upper], &below = problem.workers[lower];
    cost.boundaries.push_back({FlowBetween(above.down_bytes, problem.Pair(upper, lower),
                                           above.down_encode, below.down_decode),
                               FlowBetween(below.up_bytes, problem.Pair(lower, upper),
                                           below.up_encode, above.up_decode)});
  }
  if (problem.tied_bytes && stages > 1) {
    const uint32_t first = placed.workers.front(), last = placed.workers.back();
    cost.tied = schedule::BoundaryCost{
        FlowBetween((*problem.tied_bytes)[0], problem.Pair(first, last), 0, 0),
        FlowBetween((*problem.tied_bytes)[1], problem.Pair(last, first), 0, 0)};
  }
  return cost;
}

// The lead that activations may have in all stages.
uint32_t MostLead(const schedule::PipelineCost& cost) {
  uint32_t most = cost.microbatches - 1;
  for (uint32_t b = 0; b < cost.boundaries.size(); ++b) {
    most = std::min(most, cost.stages[chain::UpperStage(b)].depth);
  }
  return most;
}

Status CheckProblem(const PlacementProblem& problem) {
  const size_t workers = problem.workers.size();
  if (problem.stages == 0 || problem.replicas == 0 || problem.replicas > replicas::kMostReplicas ||
      problem.microbatches == 0 || problem.layers < problem.stages ||
      workers < size_t{problem.stages} * problem.replicas ||
      problem.pairs.size() != workers * workers) {
    return InvalidArgument(
        "expected as many workers as stages of all replicas or more, as many layers as stages or "
        "more, microbatches, and a pair for each two workers; got {} workers, {} layers, {} "
        "replicas of {} stages, {} microbatches, {} pairs",
        workers, problem.layers, problem.replicas, problem.stages, problem.microbatches,
        problem.pairs.size());
  }
  for (size_t role = 0; problem.replicas > 1 && role < kChainRoles; ++role) {
    const bool alone = static_cast<ChainRole>(role) == ChainRole::kOnly;
    const bool is_used = alone == (problem.stages == 1);
    if (!is_used || !problem.exchange.bytes[role].empty()) continue;
    return absl::InvalidArgumentError("expected what replicas of each stage exchange, got nothing");
  }
  return absl::OkStatus();
}

double LowerBoundOf(const ChainBound& bound, const ExchangeBound& exchange,
                    const PlacedReplicas& replicas) {
  double passes = 0;
  for (const PlacedChain& chain : replicas) passes = std::max(passes, bound.Of(chain));
  return passes + exchange.Of(replicas);
}

// Layers go from one stage to another while a simulated step gets shorter: the bound does not see
// all that a stage behind slow links waits for.
Status MoveLayers(const PlacementProblem& problem, const ChainBound& bound,
                  const ExchangeBound& exchange, const PlacementOptions& options,
                  uint64_t most_work, Placement* best) {
  const uint64_t work_of_one = WorkOfAStep(problem);
  uint64_t work = 0;
  for (bool gained = true; gained;) {
    gained = false;
    for (uint32_t from = 0; from < problem.stages; ++from) {
      for (uint32_t to = 0; to < problem.stages; ++to) {
        PlacedReplicas replicas = best->replicas;
        if (from == to || replicas.front().layers[from] < 2) continue;
        for (PlacedChain& chain : replicas) {
          --chain.layers[from];
          ++chain.layers[to];
        }
        ++best->moves;
        const double least = LowerBoundOf(bound, exchange, replicas);
        if (!(least < best->step_seconds * kLayersGain)) continue;
        work += work_of_one;
        if (work > most_work || options.limit.IsOver()) return absl::OkStatus();
        LH_ASSIGN_OR_RETURN(const double step, SimulatedStep(problem, replicas, options.stop));
        if (!(step < best->step_seconds * kLayersGain)) continue;
        best->step_seconds = step;
        best->replicas = std::move(replicas);
        gained = true;
      }
    }
  }
  return absl::OkStatus();
}

// A step of one replica without the exchange.
StatusOr<double> SimulatedPasses(const PlacementProblem& problem, const PlacedChain& chain,
                                 const std::stop_token& stop) {
  schedule::PipelineCost cost = CostOf(problem, chain);
  const uint32_t most = MostLead(cost);
  std::vector<uint32_t> leads = {0};
  if (TraitsOf(problem.schedule).orders_data && most > 0) {
    if (problem.send_order == SendOrder::kActivationsFirst) leads = {most};
    if (problem.send_order == SendOrder::kAuto) leads.push_back(most);
  }
  double best = kNoChain;
  for (const uint32_t lead : leads) {
    for (size_t s = 1; s < cost.stages.size(); ++s) cost.stages[s].activation_lead = lead;
    LH_ASSIGN_OR_RETURN(const schedule::Simulation simulation, schedule::Simulate(cost, stop));
    best = std::min(best, absl::ToDoubleSeconds(simulation.step));
  }
  return best;
}

}  // namespace

std::optional<PlacedReplicas> WithBalancedLayers(const PlacementProblem& problem,
                                                 const std::vector<uint32_t>& workers) {
  const uint32_t stages = problem.stages;
  std::vector<uint32_t> layers(stages, 1);
  const auto seconds = [&](uint32_t place, uint32_t count) {
    double slowest = 0;
    for (size_t at = place; at < workers.size(); at += stages) {
      const StageOption* option = OptionOf(problem, workers[at], count, RoleAt(place, stages));
      if (option == nullptr) return kNoChain;
      slowest = std::max(
          slowest, problem.microbatches * (option->forward + option->backward) + option->optimizer);
    }
    return slowest;
  };
  std::vector<double> with_one_more(stages);
  for (uint32_t s = 0; s < stages; ++s) {
    if (seconds(s, 1) == kNoChain) return std::nullopt;
    with_one_more[s] = seconds(s, 2);
  }
  // Times grow with layers, so the slowest stage is as fast as it can be.
  for (uint32_t left = problem.layers - stages; left > 0; --left) {
    const auto least = std::ranges::min_element(with_one_more);
    if (*least == kNoChain) return std::nullopt;
    const auto place = static_cast<uint32_t>(least - with_one_more.begin());
    ++layers[place];
    *least = seconds(place, layers[place] + 1);
  }
  PlacedReplicas replicas;
  for (auto first = workers.begin(); first != workers.end(); first += stages) {
    replicas.push_back({{first, first + stages}, layers});
  }
  return replicas;
}

std::optional<PlacedReplicas> NameOrder(const PlacementProblem& problem) {
  std::vector<uint32_t> workers(problem.stages * problem.replicas);
  std::iota(workers.begin(), workers.end(), 0);
  return WithBalancedLayers(problem, workers);
}

StatusOr<double> SimulatedStep(const PlacementProblem& problem, const PlacedReplicas& replicas,
                               const std::stop_token& stop) {
  double slowest = 0;
  for (const PlacedChain& chain : replicas) {
    LH_ASSIGN_OR_RETURN(const double passes, SimulatedPasses(problem, chain, stop));
    slowest = std::max(slowest, passes);
  }
  return slowest + ExchangeBound(problem).Of(replicas);
}

StatusOr<Placement> Place(const PlacementProblem& problem, const PlacementOptions& options) {
  LH_RETURN_IF_ERROR(CheckProblem(problem));
  const ChainBound bound(problem);
  const ExchangeBound exchange(problem);
  Placement best;
  best.step_seconds = kNoChain;
  const auto consider = [&](const PlacedReplicas& replicas) -> Status {
    LH_ASSIGN_OR_RETURN(const double step, SimulatedStep(problem, replicas, options.stop));
    if (!(step < best.step_seconds)) return absl::OkStatus();
    best.step_seconds = step;
    best.replicas = replicas;
    return absl::OkStatus();
  };
  const std::optional<PlacedReplicas> named = NameOrder(problem);
  if (named && LowerBoundOf(bound, exchange, *named) < kNoChain) {
    LH_RETURN_IF_ERROR(consider(*named));
  }
  PlacementOptions search = options;
  const uint64_t cells = uint64_t{problem.stages} * problem.replicas;
  search.most_moves = std::min(
      problem.replicas > 1 ? options.most_moves / kCostOfAReplicasMove : options.most_moves,
      kMovesOfAPair * cells * problem.workers.size());
  if (options.trial) search.most_moves /= kShareOfATrial;
  const uint64_t most_work = options.most_work / (options.trial ? kShareOfATrial : 1);
  const double ways = WaysToPlace(problem);
  if (ways > 1) {
    LH_ASSIGN_OR_RETURN(const SearchResult found, SearchReplicas(problem, bound, exchange, search));
    best.moves += found.moves;
    best.descents = found.descents;
    const uint64_t work_of_one = WorkOfAStep(problem);
    uint64_t work = 0;
    for (const RankedReplicas& one : found.best) {
      if (!(one.bound < best.step_seconds)) break;  // nor is any behind it better
      const bool is_spent = work + work_of_one > most_work / kShareOfFinalists;
      if (work > 0 && (is_spent || options.limit.IsOver())) break;
      work += work_of_one;
      LH_RETURN_IF_ERROR(consider(one.replicas));
    }
    if (!best.replicas.empty()) {
      LH_RETURN_IF_ERROR(MoveLayers(problem, bound, exchange, options,
                                    most_work - std::min(most_work, work), &best));
    }
  }
  if (ways <= options.exact_up_to && options.random_restarts == 0) {
    LH_ASSIGN_OR_RETURN(best.is_exact, SearchAllReplicas(problem, bound, exchange, options, &best));
  }
  options.limit.Count(best.moves);
  if (best.replicas.empty()) {
    return FailedPrecondition(
        "no {} of {} workers, in whatever order, hold the {} layers and can all talk to their "
        "neighbours{}",
        cells, problem.workers.size(), problem.layers,
        problem.replicas > 1 ? " and to those of the same stage" : "");
  }
  return best;
}

}  // namespace longhaul::coordinator
