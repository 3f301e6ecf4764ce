#include "planner/place_workers.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "planner/link_estimates.h"
#include "planner/links.h"
#include "planner/pipeline_cost.h"
#include "planner/prediction.h"
#include "planner/replicas.h"
#include "planner/sharing.h"
#include "planner/stage_costs.h"
#include "run/plan/chain.h"
#include "transport/replicas/traffic.h"

namespace longhaul::coordinator {
namespace {

// Share of the estimated rate that counts for a pair without a measurement, in a survey's last
// plan.
constexpr double kTrustInGuesses = 0.1;

bool HasTimedGroup(const RunSpec& spec, const CandidateWorker& worker) {
  const v1::GroupTimes* const group = TimesOfGroup(worker, spec.group);
  return worker.devices.size() >= spec.group.tensor && group != nullptr && group->refused().empty();
}

// The worker as a stage with each number of layers, by memory and measured times.
std::vector<StageOption> OptionsOf(const PlanRequest& request, const StageCosts& costs,
                                   const CandidateWorker& worker, ChainRole role, uint32_t stages) {
  const bool first = role == ChainRole::kFirst || role == ChainRole::kOnly;
  const bool last = role == ChainRole::kLast || role == ChainRole::kOnly;
  // A stage in the middle counts with the most depth that its place may ask for.
  const uint32_t place = last ? chain::LastStage(stages) : first ? 0 : 1;
  const uint32_t least = costs.LeastDepth(chain::StagesFrom(place, stages));
  const bool has_ranks = request.spec.group.tensor == 1 || HasTimedGroup(request.spec, worker);
  std::vector<StageOption> options;
  for (uint32_t layers = 1; layers + stages <= request.spec.model.layers + 1; ++layers) {
    const StageCosts::Stage stage{worker, {.embedding = first, .head = last}, layers};
    const bool fits = has_ranks && costs.Fits(stage, least);
    options.push_back({.forward = costs.Forward(stage),
                       .backward = costs.Backward(stage),
                       .optimizer = costs.Optimizer(stage),
                       .depth = fits ? costs.DepthOf(stage, least) : 0});
  }
  return options;
}

StatusOr<PlaceableWorker> WorkerOf(const PlanRequest& request, const StageCosts& costs,
                                   const CandidateWorker& worker, uint32_t stages) {
  PlaceableWorker one;
  for (size_t role = 0; role < kChainRoles; ++role) {
    const bool alone = static_cast<ChainRole>(role) == ChainRole::kOnly;
    if (alone != (stages == 1)) continue;
    one.options[role] = OptionsOf(request, costs, worker, static_cast<ChainRole>(role), stages);
  }
  const InterfaceRates interface = InterfaceOf(request, worker);
  one.egress_bytes_per_second = interface.egress_bytes_per_second;
  one.ingress_bytes_per_second = interface.ingress_bytes_per_second;
  LH_ASSIGN_OR_RETURN(const Flow down, FlowFrom(request, worker, Direction::kForward));
  LH_ASSIGN_OR_RETURN(const Flow up, FlowFrom(request, worker, Direction::kBackward));
  one.down_bytes = static_cast<double>(WithChunkHeaders(down.bytes));
  one.up_bytes = static_cast<double>(WithChunkHeaders(up.bytes));
  const FlowEstimate downwards = CodecTimesOf(worker, worker, down.codec, Direction::kForward);
  const FlowEstimate upwards = CodecTimesOf(worker, worker, up.codec, Direction::kBackward);
  one.down_encode = downwards.encode_seconds;
  one.down_decode = downwards.decode_seconds;
  one.up_encode = upwards.encode_seconds;
  one.up_decode = upwards.decode_seconds;
  return one;
}

PlanRequest WithReplicas(const PlanRequest& request, const PlacedReplicas& replicas) {
  PlanRequest placed = request;
  placed.workers.clear();
  for (const PlacedChain& chain : replicas) {
    for (const uint32_t worker : chain.workers) placed.workers.push_back(request.workers[worker]);
  }
  // What is known of interfaces by links to workers that have no stage.
  for (CandidateWorker& worker : placed.workers) {
    const InterfaceRates rates = InterfaceOf(request, worker);
    const auto bits = [](double bytes_per_second) {
      return bytes_per_second == schedule::kUnlimited ? 0 : 8 * bytes_per_second;
    };
    worker.egress_bits_per_second = bits(rates.egress_bytes_per_second);
    worker.ingress_bits_per_second = bits(rates.ingress_bytes_per_second);
  }
  placed.layers = replicas.front().layers;
  placed.candidates_for.reset();
  return placed;
}

std::vector<uint32_t> FirstByName(uint32_t count) {
  std::vector<uint32_t> workers(count);
  std::iota(workers.begin(), workers.end(), 0);
  return workers;
}

std::vector<uint32_t> SortedWorkersOf(const PlacedReplicas& replicas) {
  std::vector<uint32_t> workers;
  for (const PlacedChain& chain : replicas) {
    workers.insert(workers.end(), chain.workers.begin(), chain.workers.end());
  }
  std::ranges::sort(workers);
  return workers;
}

// 0: they cannot be a pipeline in this order.
StatusOr<double> StepOf(const PlacementProblem& problem,
                        const std::optional<PlacedReplicas>& replicas,
                        const std::stop_token& stop) {
  if (!replicas || BoundOf(problem, *replicas) == schedule::kUnlimited) return 0;
  return SimulatedStep(problem, *replicas, stop);
}

// What replicas of a stage exchange, whichever of those with so many layers it is.
StatusOr<ExchangeSize> ExchangeOf(const PlanRequest& request, uint32_t stages) {
  const ReplicasSpec& spec = request.spec.replicas;
  ExchangeSize size{.every = spec.steps_apart(),
                    .messages = replicas::MessagesOfExchange(spec.gradients)};
  const uint32_t all = request.spec.model.layers;
  for (size_t r = 0; r < kChainRoles; ++r) {
    const auto role = static_cast<ChainRole>(r);
    if ((role == ChainRole::kOnly) != (stages == 1)) continue;
    const bool first = role == ChainRole::kFirst || role == ChainRole::kOnly;
    const bool last = role == ChainRole::kLast || role == ChainRole::kOnly;
    for (uint32_t layers = 1; layers + stages <= all + 1; ++layers) {
      const LayerRange range{.first = first ? 0 : last ? all - layers : 1, .count = layers};
      LH_ASSIGN_OR_RETURN(const uint64_t bytes,
                          ExchangeBytes(request.spec, request.data.vocabulary, range,
                                        {.embedding = first, .head = last}));
      size.bytes[r].push_back(static_cast<double>(WithChunkHeaders(bytes)));
    }
  }
  return size;
}

// Whether a chain of these may be made longer to `stages`. `tries` bounds the search.
bool Extends(const std::function<bool(size_t, size_t)>& may_be_joined, uint32_t stages,
             std::vector<bool>* taken, size_t last, uint32_t length, uint32_t* tries) {
  if (length == stages || *tries == 0) return true;
  --*tries;
  for (size_t next = 0; next < taken->size(); ++next) {
    if ((*taken)[next] || !may_be_joined(last, next)) continue;
    (*taken)[next] = true;
    if (Extends(may_be_joined, stages, taken, next, length + 1, tries)) return true;
    (*taken)[next] = false;
  }
  return false;
}

}  // namespace

bool MayBePlaced(const RunSpec& spec, const std::vector<CandidateWorker>& candidates,
                 uint32_t stages) {
  constexpr uint32_t kTries = 500;
  uint32_t tries = kTries;
  const auto may_be_joined = [&](size_t upper, size_t lower) {
    return MayBeJoined(spec, candidates[upper], candidates[lower], EdgeKind::kActivations);
  };
  for (size_t first = 0; first < candidates.size(); ++first) {
    std::vector<bool> taken(candidates.size());
    taken[first] = true;
    if (Extends(may_be_joined, stages, &taken, first, 1, &tries)) return true;
  }
  return false;
}

StatusOr<PlacementProblem> ProblemOf(const PlanRequest& request) {
  const RunSpec& spec = request.spec;
  const uint32_t replicas = spec.replicas.count, stages = *request.candidates_for / replicas;
  // The best placement for steps that do not overlap is nearly the best for steps that do.
  PlacementProblem problem{.schedule = TraitsOf(spec.pipeline.schedule).without_overlap,
                           .send_order = spec.pipeline.send_order,
                           .microbatches = spec.train.microbatches,
                           .replicas = replicas,
                           .stages = stages,
                           .layers = spec.model.layers};
  if (replicas > 1) {
    LH_ASSIGN_OR_RETURN(problem.exchange, ExchangeOf(request, stages));
  }
  const StageCosts costs(spec, request.data.vocabulary);
  for (const CandidateWorker& worker : request.workers) {
    LH_ASSIGN_OR_RETURN(PlaceableWorker one, WorkerOf(request, costs, worker, stages));
    problem.workers.push_back(std::move(one));
  }
  const bool tied = spec.model.TrainsTiedMatrix() && stages > 1;
  if (tied) {
    const auto bytes = [&](Direction direction) {
      return static_cast<double>(WithChunkHeaders(TiedFlow(request, direction).bytes));
    };
    problem.tied_bytes = {bytes(Direction::kForward), bytes(Direction::kBackward)};
  }
  // A link that could not be measured may not open for the run either.
  const auto has_failed = [](const CandidateWorker& from, const CandidateWorker& to) {
    const auto link = from.to.find(to.id);
    return link != from.to.end() && link->second.has_failed;
  };
  const auto is_measured = [](const CandidateWorker& from, const CandidateWorker& to) {
    const auto link = from.to.find(to.id);
    return link != from.to.end() && link->second.bits_per_second > 0 && !link->second.is_estimate;
  };
  for (const CandidateWorker& from : request.workers) {
    for (const CandidateWorker& to : request.workers) {
      PairCost& pair = problem.pairs.emplace_back();
      if (&from == &to) continue;
      const FlowRates rates = RatesBetween(request, from, to);
      pair.bytes_per_second = rates.bytes_per_second;
      pair.latency = absl::ToDoubleSeconds(rates.latency);
      const bool is_guess = request.only_measured && !is_measured(from, to);
      // So many pairs have to be joined that there may be no way to use measured ones alone.
      if (is_guess && replicas > 1) pair.bytes_per_second *= kTrustInGuesses;
      const bool failed =
          has_failed(from, to) || has_failed(to, from) || (is_guess && replicas == 1);
      pair.may_be_joined = !failed && MayBeJoined(spec, from, to, EdgeKind::kActivations);
      pair.may_hold_tied = !tied || (!failed && MayBeJoined(spec, from, to, EdgeKind::kTied));
      pair.may_exchange =
          replicas == 1 || (!failed && MayBeJoined(spec, from, to, EdgeKind::kReplicas));
    }
  }
  return problem;
}

StatusOr<PlanRequest> PlaceWorkers(const PlanRequest& request, const std::stop_token& stop) {
  PlanRequest known = request;
  EstimateLinks(&known.workers);
  const uint32_t count = *request.candidates_for, stages = count / request.spec.replicas.count;
  PlanRequest by_name = WithReplicas(known, {{.workers = FirstByName(count)}});
  by_name.layers.reset();
  if (request.spec.pipeline.placement == PlacementKind::kNames) return by_name;
  // Then the plan says so.
  if (stages == 0 || stages > request.spec.model.layers || request.spec.train.microbatches == 0) {
    return by_name;
  }
  LH_ASSIGN_OR_RETURN(const PlacementProblem problem, ProblemOf(known));
  const StatusOr<Placement> best = Place(
      problem, {.trial = request.effort == Effort::kTrial, .limit = request.limit, .stop = stop});
  if (absl::IsFailedPrecondition(best.status()) && request.only_measured) {
    PlanRequest with_estimates = request;
    with_estimates.only_measured = false;
    return PlaceWorkers(with_estimates, stop);
  }
  if (absl::IsFailedPrecondition(best.status())) return by_name;
  if (!best.ok()) return best.status();
  PlacementSummary summary{.candidates = static_cast<uint32_t>(request.workers.size()),
                           .is_exact = best->is_exact};
  LH_ASSIGN_OR_RETURN(summary.first_by_name_seconds, StepOf(problem, NameOrder(problem), stop));
  const auto is_not_worth_it = [&](double by_name_seconds) {
    return by_name_seconds > 0 &&
           best->step_seconds > (1 - kLeastGainOfPlacement) * by_name_seconds;
  };
  const bool stays = is_not_worth_it(summary.first_by_name_seconds);
  PlacedReplicas replicas = best->replicas;
  const std::optional<PlacedReplicas> in_name_order =
      WithBalancedLayers(problem, stays ? FirstByName(count) : SortedWorkersOf(replicas));
  LH_ASSIGN_OR_RETURN(summary.name_order_seconds, StepOf(problem, in_name_order, stop));
  summary.step_seconds = best->step_seconds;
  if (is_not_worth_it(summary.name_order_seconds)) {
    replicas = *in_name_order;
    summary.step_seconds = summary.name_order_seconds;
  }
  PlanRequest placed = stays ? std::move(by_name) : WithReplicas(known, replicas);
  placed.placement = summary;
  return placed;
}

std::optional<PlanRequest> WithFewSharers(const PlanRequest& request) {
  const RunSpec& spec = request.spec;
  if (spec.replay || spec.pipeline.placement == PlacementKind::kNames) return std::nullopt;
  const std::vector<uint32_t> workers = SpreadOverDevices(request.workers, *request.candidates_for);
  if (workers.size() == request.workers.size()) return std::nullopt;
  PlanRequest spread = WithReplicas(request, {{.workers = workers}});
  spread.layers.reset();
  spread.candidates_for = request.candidates_for;
  return spread;
}

}  // namespace longhaul::coordinator
