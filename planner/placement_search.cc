#include "planner/placement_search.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <utility>

#include "planner/placement_descent.h"

namespace longhaul::coordinator {
namespace {

constexpr size_t kKept = 12;  // best results that the search keeps
// Descents in a row without a gain before the search begins elsewhere; with replicas, starts differ
// more.
constexpr uint32_t kFruitless = 40, kFruitlessOfReplicas = 15;
constexpr double kAcceptedLoss = 1.003;  // a descent may be worse by this factor and be followed
// Greedy starts of a trial, on which it spends at most half of its moves.
constexpr uint32_t kGreedyStarts = 16;
constexpr uint64_t kMovesBetweenLooks = 1 << 14;

// The best results so far without duplicates, whatever the order of their replicas.
class BestReplicas {
 public:
  void Consider(PlacedReplicas replicas, double bound) {
    if (bound == kNoChain) return;
    if (best_.size() == kKept && bound >= best_.back().bound) return;
    std::ranges::sort(replicas, {}, [](const PlacedChain& chain) { return chain.workers.front(); });
    const auto place = std::ranges::upper_bound(best_, bound, {}, &RankedReplicas::bound);
    if (std::ranges::find(best_, replicas, &RankedReplicas::replicas) != best_.end()) return;
    best_.insert(place, {std::move(replicas), bound});
    if (best_.size() > kKept) best_.pop_back();
  }
  double bound() const { return best_.empty() ? kNoChain : best_.front().bound; }
  const PlacedReplicas& first() const { return best_.front().replicas; }
  std::vector<RankedReplicas> Take() { return std::move(best_); }

 private:
  std::vector<RankedReplicas> best_;  // the best first
};

class Search {
 public:
  Search(const PlacementProblem& problem, const ChainBound& bound, const ExchangeBound& exchange,
         const PlacementOptions& options)
      : problem_(problem),
        cells_(problem.stages * problem.replicas),
        bound_(bound),
        exchange_(exchange),
        options_(options),
        random_(options.seed),
        descent_(problem, bound, exchange) {}

  StatusOr<SearchResult> Go() {
    if (options_.random_restarts > 0) {
      LH_RETURN_IF_ERROR(Restart());
    } else {
      if (options_.trial) LH_RETURN_IF_ERROR(Survey());
      LH_RETURN_IF_ERROR(Iterate());  // with the moves that are left
    }
    return SearchResult{best_.Take(), descent_.moves(), descents_};
  }

 private:
  uint32_t Below(size_t limit) { return static_cast<uint32_t>(random_() % limit); }

  Status Restart() {
    for (uint32_t i = 0; i < options_.random_restarts && !IsEnough(); ++i) {
      LH_RETURN_IF_ERROR(Look(static_cast<double>(i) / options_.random_restarts));
      if (auto start = WithBalancedLayers(problem_, RandomWorkers())) Descend(*std::move(start));
    }
    return absl::OkStatus();
  }

  // What few descents find: from greedy starts, and from changes of the best of these.
  Status Survey() {
    const uint32_t ways = problem_.replicas > 1 ? 2 : 1;
    const auto all = static_cast<uint32_t>(problem_.workers.size());
    const uint64_t most_moves = options_.most_moves / 2;
    for (uint32_t i = 0; i < kGreedyStarts && descent_.moves() < most_moves && !IsEnough(); ++i) {
      LH_RETURN_IF_ERROR(Look(ShareOfMoves()));
      const uint32_t first = i / ways * ways * all / kGreedyStarts;
      // Across the replicas of each stage first.
      const uint32_t start = first * ways + (ways - 1 - i % ways);
      if (auto greedy = WithBalancedLayers(problem_, GreedyWorkers(start))) {
        Descend(*std::move(greedy));
      }
    }
    if (best_.bound() == kNoChain) return absl::OkStatus();
    PlacedReplicas at = best_.first();
    double bound = best_.bound();
    while (descent_.moves() < options_.most_moves && !IsEnough()) {
      LH_RETURN_IF_ERROR(Look(ShareOfMoves()));
      const uint64_t before = descent_.moves();
      Descend(Changed(at));
      if (descent_.moves() == before) break;  // nothing can be moved
      if (descent_.bound() > bound * kAcceptedLoss) continue;
      at = descent_.replicas();
      bound = descent_.bound();
    }
    return absl::OkStatus();
  }

  Status Iterate() {
    if (auto named = NameOrder(problem_)) Descend(*std::move(named));
    uint32_t greedy = 0;  // starts so far
    const size_t most_greedy = problem_.workers.size() * (problem_.replicas > 1 ? 2 : 1);
    while (descent_.moves() < options_.most_moves && descents_ < 4 * kMovesBetweenLooks &&
           !IsEnough()) {
      const std::vector<uint32_t> workers = greedy < most_greedy && greedy % 2 == descents_ % 2
                                                ? GreedyWorkers(greedy++)
                                                : RandomWorkers();
      const auto start = WithBalancedLayers(problem_, workers);
      if (start) {
        Descend(*start);
      } else if (++misfits_ > 100) {
        break;
      }
      PlacedReplicas at = descent_.replicas();
      double bound = descent_.bound();
      if (!start || bound == kNoChain) continue;
      double nearest = bound;
      const uint32_t patience = problem_.replicas > 1 ? kFruitlessOfReplicas : kFruitless;
      for (uint32_t fruitless = 0;
           fruitless < patience && descent_.moves() < options_.most_moves && !IsEnough();
           ++fruitless) {
        LH_RETURN_IF_ERROR(Look(ShareOfMoves()));
        Descend(Changed(at));
        const double reached = descent_.bound();
        if (reached < nearest * kMoveGains) {
          nearest = reached;
          fruitless = 0;
        }
        if (reached > bound * kAcceptedLoss) continue;
        at = descent_.replicas();
        bound = reached;
      }
    }
    return absl::OkStatus();
  }

  // A possible placement is known, and the time for more is over.
  bool IsEnough() const { return best_.bound() != kNoChain && options_.limit.IsOver(); }

  double ShareOfMoves() const {
    return static_cast<double>(descent_.moves()) / static_cast<double>(options_.most_moves);
  }

  Status Look(double share) {
    if (options_.stop.stop_requested()) {
      return absl::CancelledError("the search for a placement was stopped: it is not wanted");
    }
    if (options_.progress && descent_.moves() >= next_look_) {
      next_look_ = descent_.moves() + kMovesBetweenLooks;
      options_.progress(share, best_.bound());
    }
    return absl::OkStatus();
  }

  void Descend(PlacedReplicas start) {
    ++descents_;
    descent_.Set(std::move(start));
    descent_.Go(options_.random_restarts > 0 ? std::numeric_limits<uint64_t>::max()
                                             : options_.most_moves);
    best_.Consider(descent_.replicas(), descent_.bound());
  }

  std::vector<uint32_t> RandomWorkers() {
    std::vector<uint32_t> workers(problem_.workers.size());
    std::iota(workers.begin(), workers.end(), 0);
    for (uint32_t i = 0; i < cells_; ++i) {
      std::swap(workers[i], workers[i + Below(workers.size() - i)]);
    }
    workers.resize(cells_);
    return workers;
  }

  // The nearest that is left, again and again: along each chain, or in every other start first
  // across the replicas of each stage.
  std::vector<uint32_t> GreedyWorkers(uint32_t start) {
    const uint32_t stages = problem_.stages, replicas = problem_.replicas;
    const bool across = replicas > 1 && start % 2 == 1;
    const uint32_t first = start / (replicas > 1 ? 2 : 1);
    std::vector<bool> taken(problem_.workers.size());
    std::vector<uint32_t> order = {first};
    taken[first] = true;
    while (order.size() < cells_) {
      const bool to_replica = across && order.size() % replicas != 0;
      uint32_t nearest = 0;
      double least = kNoChain;
      for (uint32_t w = 0; w < taken.size(); ++w) {
        if (taken[w]) continue;
        const double seconds = to_replica ? exchange_.Between(order.back(), w).seconds_per_byte
                                          : bound_.BoundarySeconds(order.back(), w);
        if (seconds < least || least == kNoChain) nearest = w, least = seconds;
      }
      taken[nearest] = true;
      order.push_back(nearest);
    }
    if (!across) return order;
    std::vector<uint32_t> workers;
    for (uint32_t r = 0; r < replicas; ++r) {
      for (uint32_t s = 0; s < stages; ++s) workers.push_back(order[s * replicas + r]);
    }
    return workers;
  }

  void ExchangeSomeWithSpares(PlacedReplicas* replicas) {
    std::vector<bool> taken(problem_.workers.size());
    for (const PlacedChain& chain : *replicas) {
      for (const uint32_t worker : chain.workers) taken[worker] = true;
    }
    for (uint32_t count = 1 + Below(3); count > 0; --count) {
      const uint32_t cell = Below(cells_), worker = Below(taken.size());
      if (taken[worker]) continue;
      taken[worker] = true;
      uint32_t& place = (*replicas)[cell / problem_.stages].workers[cell % problem_.stages];
      taken[std::exchange(place, worker)] = false;
    }
  }

  void SwapSome(PlacedReplicas* replicas) {
    const auto at = [&](uint32_t cell) -> uint32_t& {
      return (*replicas)[cell / problem_.stages].workers[cell % problem_.stages];
    };
    for (uint32_t count = 2 + Below(3); count > 0; --count) {
      std::swap(at(Below(cells_)), at(Below(cells_)));
    }
  }

  // Three cuts, and the two parts between them change places in all replicas; or a few workers
  // change with spares, or among replicas; or both.
  PlacedReplicas Changed(PlacedReplicas replicas) {
    const uint32_t stages = problem_.stages;
    const bool exchanges = problem_.workers.size() > cells_ && Below(2) == 0;
    if (exchanges) ExchangeSomeWithSpares(&replicas);
    const bool swaps = replicas.size() > 1 && Below(2) == 0;
    if (swaps) SwapSome(&replicas);
    if (stages < 4 || ((exchanges || swaps) && Below(2) == 0)) return replicas;
    std::array<uint32_t, 3> cuts{};
    // Near each other: a distant change is mostly undone.
    const uint32_t width = std::min(stages, 12u);
    const uint32_t begin = Below(stages - width + 1);
    for (uint32_t& cut : cuts) cut = begin + Below(width + 1);
    std::ranges::sort(cuts);
    for (PlacedChain& chain : replicas) {
      for (std::vector<uint32_t>* row : {&chain.workers, &chain.layers}) {
        std::rotate(row->begin() + cuts[0], row->begin() + cuts[1], row->begin() + cuts[2]);
      }
    }
    return replicas;
  }

  const PlacementProblem& problem_;
  const uint32_t cells_;
  const ChainBound& bound_;
  const ExchangeBound& exchange_;
  const PlacementOptions& options_;
  std::mt19937_64 random_;
  Descent descent_;
  BestReplicas best_;
  uint32_t descents_ = 0, misfits_ = 0;
  uint64_t next_look_ = 0;
};

}  // namespace

StatusOr<SearchResult> SearchReplicas(const PlacementProblem& problem, const ChainBound& bound,
                                      const ExchangeBound& exchange,
                                      const PlacementOptions& options) {
  return Search(problem, bound, exchange, options).Go();
}

}  // namespace longhaul::coordinator
