#include "planner/chain_bound.h"

#include <algorithm>

namespace longhaul::coordinator {
namespace {

double RateOf(const PlacementProblem& problem, uint32_t from, uint32_t to) {
  return std::min({problem.workers[from].egress_bytes_per_second,
                   problem.workers[to].ingress_bytes_per_second,
                   problem.Pair(from, to).bytes_per_second});
}

// What a stage's interface carries of a microbatch at least, whoever its neighbours are.
struct InterfaceTraffic {
  double sent = 0, received = 0;
};
InterfaceTraffic TrafficOf(const PlacementProblem& problem, const PlaceableWorker& worker,
                           ChainRole role) {
  double least_down = kNoChain, least_up = kNoChain;
  for (const PlaceableWorker& one : problem.workers) {
    least_down = std::min(least_down, one.down_bytes);
    least_up = std::min(least_up, one.up_bytes);
  }
  const bool below = role == ChainRole::kFirst || role == ChainRole::kMiddle;
  const bool above = role == ChainRole::kLast || role == ChainRole::kMiddle;
  return {.sent = (below ? worker.down_bytes : 0) + (above ? worker.up_bytes : 0),
          .received = (above ? least_down : 0) + (below ? least_up : 0)};
}

}  // namespace

ChainBound::ChainBound(const PlacementProblem& problem)
    : problem_(problem), workers_(problem.workers.size()) {
  const double all = problem.microbatches;
  by_layers_.resize(workers_ * kChainRoles);
  boundaries_.resize(workers_ * workers_);
  for (uint32_t w = 0; w < workers_; ++w) {
    const PlaceableWorker& worker = problem.workers[w];
    for (size_t role = 0; role < kChainRoles; ++role) {
      const InterfaceTraffic traffic = TrafficOf(problem, worker, static_cast<ChainRole>(role));
      const double interface = all * std::max(traffic.sent / worker.egress_bytes_per_second,
                                              traffic.received / worker.ingress_bytes_per_second);
      for (const StageOption& option : worker.options[role]) {
        const double seconds = option.forward + option.backward;
        by_layers_[w * kChainRoles + role].push_back(
            option.depth == 0 ? Impossible(w)
                              : Segment{.round = seconds,
                                        .stage = std::max(all * seconds, interface),
                                        .first = w,
                                        .last = w});
      }
    }
    for (uint32_t lower = 0; lower < workers_; ++lower) {
      Boundary& between = boundaries_[w * workers_ + lower];
      if (lower == w || !problem.Pair(w, lower).may_be_joined) {
        between = {kImpossibleSeconds, 0};
        continue;
      }
      const PlaceableWorker& below = problem.workers[lower];
      const double down = worker.down_bytes / RateOf(problem, w, lower);
      const double up = below.up_bytes / RateOf(problem, lower, w);
      between.round = down + up + problem.Pair(w, lower).latency + problem.Pair(lower, w).latency +
                      worker.down_encode + below.down_decode + below.up_encode + worker.up_decode;
      between.wire = (all - 1) * std::max(down, up);
    }
  }
}

double ChainBound::After(uint32_t first, uint32_t first_layers, uint32_t last) const {
  const ChainRole role = RoleAt(0);
  const auto& options = problem_.workers[first].options[static_cast<size_t>(role)];
  if (first_layers > options.size()) return kImpossibleSeconds;
  double after = options[first_layers - 1].optimizer;
  if (problem_.tied_bytes && first != last) {
    if (!problem_.Pair(first, last).may_hold_tied) return kImpossibleSeconds;
    // What the first stage sends leaves when its passes have ended.
    after += (*problem_.tied_bytes)[0] / RateOf(problem_, first, last) +
             problem_.Pair(first, last).latency;
  }
  return after;
}

double ChainBound::Of(const PlacedChain& chain) const {
  Segment whole = Stage(chain.workers[0], chain.layers[0], RoleAt(0));
  for (uint32_t s = 1; s < problem_.stages; ++s) {
    whole = Join(whole, Stage(chain.workers[s], chain.layers[s], RoleAt(s)));
  }
  const double seconds =
      whole.Bound() + After(chain.workers.front(), chain.layers.front(), chain.workers.back());
  return IsPossible(seconds) ? seconds : kNoChain;
}

ExchangeBound::ExchangeBound(const PlacementProblem& problem)
    : problem_(problem), workers_(problem.workers.size()) {
  pairs_.resize(workers_ * workers_);
  const double others = problem.replicas - 1;
  for (uint32_t one = 0; one < workers_; ++one) {
    const PlaceableWorker& worker = problem.workers[one];
    interfaces_.push_back(
        others / std::min(worker.egress_bytes_per_second, worker.ingress_bytes_per_second));
    for (uint32_t other = 0; other < workers_; ++other) {
      if (other == one) continue;
      const PairCost &there = problem.Pair(one, other), &back = problem.Pair(other, one);
      Column& pair = pairs_[one * workers_ + other];
      pair.latency = std::max(there.latency, back.latency);
      pair.seconds_per_byte =
          there.may_exchange && back.may_exchange
              ? 1 / std::min(RateOf(problem, one, other), RateOf(problem, other, one))
              : kImpossibleSeconds;
    }
  }
}

double ExchangeBound::Of(const PlacedReplicas& replicas) const {
  if (replicas.size() < 2) return 0;
  double transfer = 0, latency = 0;
  for (uint32_t s = 0; s < problem_.stages; ++s) {
    std::vector<uint32_t> workers;
    Column column;
    for (const PlacedChain& chain : replicas) {
      column = With(column, workers, chain.workers[s]);
      workers.push_back(chain.workers[s]);
    }
    const ChainRole role = RoleAt(s, problem_.stages);
    transfer =
        std::max(transfer, Bytes(role, replicas.front().layers[s]) * column.seconds_per_byte);
    latency = std::max(latency, column.latency);
  }
  const double seconds = Seconds(transfer, latency);
  return IsPossible(seconds) ? seconds : kNoChain;
}

double BoundOf(const PlacementProblem& problem, const PlacedReplicas& replicas) {
  const ChainBound bound(problem);
  double passes = 0;
  for (const PlacedChain& chain : replicas) passes = std::max(passes, bound.Of(chain));
  return passes + ExchangeBound(problem).Of(replicas);
}

}  // namespace longhaul::coordinator
