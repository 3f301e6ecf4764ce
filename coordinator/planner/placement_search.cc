#include "coordinator/planner/placement_search.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <utility>

namespace longhaul::coordinator {
namespace {

// A move that gains less is none: sums of doubles in another order differ by that.
constexpr double kMoveGains = 1 - 1e-9;
constexpr size_t kKept = 12;             // of the best chains
constexpr uint32_t kLongestMoved = 3;    // workers that move together
constexpr uint32_t kFruitless = 40;      // descents in a row before the search begins elsewhere
constexpr double kAcceptedLoss = 1.003;  // of a descent that is followed although it is worse
constexpr uint64_t kMovesBetweenLooks = 1 << 14;

// Places `begin` to `end` of the chain, both included; from the end to the begin where that is
// larger. Or one stage that is not in the chain so.
struct Piece {
  uint32_t begin = 0, end = 0;
  bool is_new = false;
  uint32_t worker = 0, layers = 0;
};

// At most: two new stages and what is left of the chain around them.
struct Pieces {
  std::array<Piece, 5> of;
  size_t count = 0;
  void Add(uint32_t begin, uint32_t end) { of[count++] = {.begin = begin, .end = end}; }
  // Of places [begin, end), which may be none.
  void AddRange(uint32_t begin, uint32_t end) {
    if (begin < end) Add(begin, end - 1);
  }
  void AddNew(uint32_t worker, uint32_t layers) {
    of[count++] = {.is_new = true, .worker = worker, .layers = layers};
  }
};

class Descent {
 public:
  Descent(const PlacementProblem& problem, const ChainBound& bound)
      : problem_(problem), bound_(bound), stages_(problem.stages) {
    segments_.resize(size_t{stages_} * stages_);
  }

  uint64_t moves() const { return moves_; }
  const PlacedChain& chain() const { return chain_; }
  double bound() const { return value_; }

  void Set(PlacedChain chain) {
    chain_ = std::move(chain);
    spares_.clear();
    std::vector<bool> taken(problem_.workers.size());
    for (const uint32_t worker : chain_.workers) taken[worker] = true;
    for (uint32_t w = 0; w < taken.size(); ++w) {
      if (!taken[w]) spares_.push_back(w);
    }
    Rebuild();
  }

  // Until no move gains, or `most_moves` were judged.
  void Go(uint64_t most_moves) {
    for (bool gained = true; gained && moves_ < most_moves;) {
      gained = ExchangeWithSpares();
      gained |= MoveParts();
      gained |= SwapAndReverse();
      gained |= MoveLayers();
    }
  }

 private:
  const Segment& Along(uint32_t begin, uint32_t end) const {
    return segments_[begin * stages_ + end];
  }
  Segment StageAt(uint32_t place, ChainRole role) const {
    return bound_.Stage(chain_.workers[place], chain_.layers[place], role);
  }

  void Rebuild() {
    for (uint32_t from = 0; from < stages_; ++from) {
      const Segment own = StageAt(from, ChainRole::kMiddle);
      segments_[from * stages_ + from] = own;
    }
    for (uint32_t from = 0; from < stages_; ++from) {
      for (uint32_t to = from + 1; to < stages_; ++to) {
        segments_[from * stages_ + to] = bound_.Join(Along(from, to - 1), Along(to, to));
      }
      for (uint32_t to = from; to-- > 0;) {
        segments_[from * stages_ + to] = bound_.Join(Along(from, to + 1), Along(to, to));
      }
    }
    value_ = bound_.Of(chain_);
  }

  // The pieces in a row. Stages at the ends have other roles, and are joined by themselves.
  double Judge(const Pieces& pieces) {
    ++moves_;
    const Piece& head = pieces.of[0];
    const Piece& tail = pieces.of[pieces.count - 1];
    const uint32_t first = head.is_new ? head.worker : chain_.workers[head.begin];
    const uint32_t first_layers = head.is_new ? head.layers : chain_.layers[head.begin];
    const uint32_t last = tail.is_new ? tail.worker : chain_.workers[tail.end];
    Segment whole = bound_.Stage(first, first_layers, ChainRole::kFirst);
    for (size_t p = 0; p < pieces.count; ++p) {
      const Piece& piece = pieces.of[p];
      const bool from_head = p == 0, to_tail = p + 1 == pieces.count;
      if (piece.is_new) {
        if (!from_head && !to_tail) {
          whole = bound_.Join(whole, bound_.Stage(piece.worker, piece.layers, ChainRole::kMiddle));
        }
        continue;
      }
      const int step = piece.begin <= piece.end ? 1 : -1;
      const int begin = static_cast<int>(piece.begin) + (from_head ? step : 0);
      const int end = static_cast<int>(piece.end) - (to_tail ? step : 0);
      if ((end - begin) * step < 0) continue;
      whole = bound_.Join(whole, Along(static_cast<uint32_t>(begin), static_cast<uint32_t>(end)));
    }
    whole =
        bound_.Join(whole, tail.is_new ? bound_.Stage(tail.worker, tail.layers, ChainRole::kLast)
                                       : StageAt(tail.end, ChainRole::kLast));
    const double passes = whole.Bound();
    if (!(passes < value_)) return kNoChain;
    return passes + bound_.After(first, first_layers, last);
  }

  bool Try(const Pieces& pieces) {
    if (!(Judge(pieces) < value_ * kMoveGains)) return false;
    PlacedChain next;
    for (size_t p = 0; p < pieces.count; ++p) {
      const Piece& piece = pieces.of[p];
      if (piece.is_new) {
        next.workers.push_back(piece.worker);
        next.layers.push_back(piece.layers);
        continue;
      }
      const int step = piece.begin <= piece.end ? 1 : -1;
      for (int place = static_cast<int>(piece.begin);; place += step) {
        next.workers.push_back(chain_.workers[static_cast<size_t>(place)]);
        next.layers.push_back(chain_.layers[static_cast<size_t>(place)]);
        if (place == static_cast<int>(piece.end)) break;
      }
    }
    chain_ = std::move(next);
    Rebuild();
    return true;
  }

  // Places [0, i), something, (i, stages).
  Pieces Around(uint32_t place, const Piece& instead) const {
    Pieces pieces;
    pieces.AddRange(0, place);
    pieces.of[pieces.count++] = instead;
    pieces.AddRange(place + 1, stages_);
    return pieces;
  }

  bool SwapAndReverse() {
    bool gained = false;
    for (uint32_t i = 0; i < stages_; ++i) {
      for (uint32_t j = i + 1; j < stages_; ++j) {
        Pieces reversed;
        reversed.AddRange(0, i);
        reversed.Add(j, i);
        reversed.AddRange(j + 1, stages_);
        gained |= Try(reversed);
        if (j < i + 3) continue;  // else the same
        Pieces swapped;
        swapped.AddRange(0, i);
        swapped.Add(j, j);
        swapped.AddRange(i + 1, j);
        swapped.Add(i, i);
        swapped.AddRange(j + 1, stages_);
        gained |= Try(swapped);
      }
    }
    return gained;
  }

  // Up to three workers move, either way round, to before the worker at `to`.
  bool MoveParts() {
    bool gained = false;
    for (uint32_t count = 1; count <= kLongestMoved && count < stages_; ++count) {
      for (uint32_t from = 0; from + count <= stages_; ++from) {
        const uint32_t end = from + count;
        for (uint32_t to = 0; to <= stages_; ++to) {
          if (to >= from && to <= end) continue;
          for (const bool turned : {false, true}) {
            if (turned && count == 1) continue;
            Pieces pieces;
            pieces.AddRange(0, std::min(to, from));
            if (to > end) pieces.AddRange(end, to);
            pieces.Add(turned ? end - 1 : from, turned ? from : end - 1);
            if (to < from) pieces.AddRange(to, from);
            pieces.AddRange(std::max(to, end), stages_);
            gained |= Try(pieces);
          }
        }
      }
    }
    return gained;
  }

  bool ExchangeWithSpares() {
    bool gained = false;
    for (uint32_t place = 0; place < stages_; ++place) {
      for (uint32_t& spare : spares_) {
        const uint32_t leaves = chain_.workers[place];
        if (!Try(
                Around(place, {.is_new = true, .worker = spare, .layers = chain_.layers[place]}))) {
          continue;
        }
        spare = leaves;
        gained = true;
      }
    }
    return gained;
  }

  bool MoveLayers() {
    bool gained = false;
    for (uint32_t i = 0; i < stages_; ++i) {
      for (uint32_t j = 0; j < stages_; ++j) {
        if (i == j || chain_.layers[i] < 2) continue;
        const Piece less{
            .is_new = true, .worker = chain_.workers[i], .layers = chain_.layers[i] - 1};
        const Piece more{
            .is_new = true, .worker = chain_.workers[j], .layers = chain_.layers[j] + 1};
        Pieces pieces;
        pieces.AddRange(0, std::min(i, j));
        pieces.of[pieces.count++] = i < j ? less : more;
        pieces.AddRange(std::min(i, j) + 1, std::max(i, j));
        pieces.of[pieces.count++] = i < j ? more : less;
        pieces.AddRange(std::max(i, j) + 1, stages_);
        gained |= Try(pieces);
      }
    }
    return gained;
  }

  const PlacementProblem& problem_;
  const ChainBound& bound_;
  const uint32_t stages_;
  PlacedChain chain_;
  double value_ = kNoChain;
  std::vector<uint32_t> spares_;
  // Along each part of the chain, either way, as stages in the middle.
  std::vector<Segment> segments_;
  uint64_t moves_ = 0;
};

// The best chains so far, each once.
class BestChains {
 public:
  void Consider(const PlacedChain& chain, double bound) {
    if (bound == kNoChain) return;
    if (chains_.size() == kKept && bound >= chains_.back().bound) return;
    const auto place = std::ranges::upper_bound(chains_, bound, {}, &RankedChain::bound);
    if (std::ranges::find(chains_, chain, &RankedChain::chain) != chains_.end()) return;
    chains_.insert(place, {chain, bound});
    if (chains_.size() > kKept) chains_.pop_back();
  }
  double bound() const { return chains_.empty() ? kNoChain : chains_.front().bound; }
  std::vector<RankedChain> Take() { return std::move(chains_); }

 private:
  std::vector<RankedChain> chains_;  // the best first
};

class Search {
 public:
  Search(const PlacementProblem& problem, const ChainBound& bound, const PlacementOptions& options)
      : problem_(problem),
        bound_(bound),
        options_(options),
        random_(options.seed),
        descent_(problem, bound) {}

  StatusOr<SearchResult> Go() {
    LH_RETURN_IF_ERROR(options_.random_restarts > 0 ? Restart() : Iterate());
    return SearchResult{best_.Take(), descent_.moves(), descents_};
  }

 private:
  uint32_t Below(size_t limit) { return static_cast<uint32_t>(random_() % limit); }

  Status Restart() {
    for (uint32_t i = 0; i < options_.random_restarts; ++i) {
      LH_RETURN_IF_ERROR(Look(static_cast<double>(i) / options_.random_restarts));
      if (auto start = WithBalancedLayers(problem_, RandomWorkers())) Descend(*std::move(start));
    }
    return absl::OkStatus();
  }

  Status Iterate() {
    if (auto named = NameOrder(problem_)) Descend(*std::move(named));
    uint32_t greedy = 0;  // starts so far
    while (descent_.moves() < options_.most_moves && descents_ < 4 * kMovesBetweenLooks) {
      std::vector<uint32_t> workers =
          greedy < problem_.workers.size() && greedy % 2 == descents_ % 2 ? GreedyWorkers(greedy++)
                                                                          : RandomWorkers();
      const auto start = WithBalancedLayers(problem_, std::move(workers));
      if (start) {
        Descend(*start);
      } else if (++misfits_ > 100) {
        break;
      }
      PlacedChain at = descent_.chain();
      double bound = descent_.bound();
      if (!start || bound == kNoChain) continue;
      double nearest = bound;
      for (uint32_t fruitless = 0; fruitless < kFruitless && descent_.moves() < options_.most_moves;
           ++fruitless) {
        LH_RETURN_IF_ERROR(
            Look(static_cast<double>(descent_.moves()) / static_cast<double>(options_.most_moves)));
        Descend(Changed(at));
        if (descent_.bound() < nearest * kMoveGains) {
          nearest = descent_.bound();
          fruitless = 0;
        }
        if (descent_.bound() > bound * kAcceptedLoss) continue;
        at = descent_.chain();
        bound = descent_.bound();
      }
    }
    return absl::OkStatus();
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

  void Descend(PlacedChain start) {
    ++descents_;
    descent_.Set(std::move(start));
    descent_.Go(options_.random_restarts > 0 ? std::numeric_limits<uint64_t>::max()
                                             : options_.most_moves);
    best_.Consider(descent_.chain(), descent_.bound());
  }

  std::vector<uint32_t> RandomWorkers() {
    std::vector<uint32_t> workers(problem_.workers.size());
    std::iota(workers.begin(), workers.end(), 0);
    for (uint32_t i = 0; i < problem_.stages; ++i) {
      std::swap(workers[i], workers[i + Below(workers.size() - i)]);
    }
    workers.resize(problem_.stages);
    return workers;
  }

  // The nearest that is left, again and again.
  std::vector<uint32_t> GreedyWorkers(uint32_t first) {
    std::vector<bool> taken(problem_.workers.size());
    std::vector<uint32_t> workers = {first};
    taken[first] = true;
    while (workers.size() < problem_.stages) {
      uint32_t nearest = 0;
      double least = kNoChain;
      for (uint32_t w = 0; w < taken.size(); ++w) {
        if (taken[w]) continue;
        const double seconds = bound_.BoundarySeconds(workers.back(), w);
        if (seconds < least || least == kNoChain) nearest = w, least = seconds;
      }
      taken[nearest] = true;
      workers.push_back(nearest);
    }
    return workers;
  }

  // Three cuts, and the two parts between them change places; or a few workers change with spares;
  // or both.
  PlacedChain Changed(PlacedChain chain) {
    const uint32_t stages = problem_.stages;
    const size_t spares = problem_.workers.size() - stages;
    const bool exchanges = spares > 0 && Below(2) == 0;
    if (exchanges) {
      std::vector<bool> taken(problem_.workers.size());
      for (const uint32_t worker : chain.workers) taken[worker] = true;
      for (uint32_t count = 1 + Below(3); count > 0; --count) {
        const uint32_t place = Below(stages), worker = Below(taken.size());
        if (taken[worker]) continue;
        taken[worker] = true;
        taken[std::exchange(chain.workers[place], worker)] = false;
      }
    }
    if (stages < 4 || (exchanges && Below(2) == 0)) return chain;
    std::array<uint32_t, 3> cuts{};
    // Near each other: a distant change is mostly undone.
    const uint32_t width = std::min(stages, 12u);
    const uint32_t begin = Below(stages - width + 1);
    for (uint32_t& cut : cuts) cut = begin + Below(width + 1);
    std::ranges::sort(cuts);
    for (std::vector<uint32_t>* row : {&chain.workers, &chain.layers}) {
      std::rotate(row->begin() + cuts[0], row->begin() + cuts[1], row->begin() + cuts[2]);
    }
    return chain;
  }

  const PlacementProblem& problem_;
  const ChainBound& bound_;
  const PlacementOptions& options_;
  std::mt19937_64 random_;
  Descent descent_;
  BestChains best_;
  uint32_t descents_ = 0, misfits_ = 0;
  uint64_t next_look_ = 0;
};

}  // namespace

StatusOr<SearchResult> SearchChains(const PlacementProblem& problem, const ChainBound& bound,
                                    const PlacementOptions& options) {
  return Search(problem, bound, options).Go();
}

}  // namespace longhaul::coordinator
