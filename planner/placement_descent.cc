#include "planner/placement_descent.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "run/plan/chain.h"
#include "transport/replicas/layout.h"

namespace longhaul::coordinator {
namespace {

constexpr uint32_t kLongestMoved = 3;  // stages that move together
// The slowest replica or stage decides, and the mean over all counts this much beside it. Without
// the mean most moves would change nothing, and the search would not see the way.
constexpr double kWeightOfMean = 0.02;

}  // namespace

Descent::Descent(const PlacementProblem& problem, const ChainBound& bound,
                 const ExchangeBound& exchange)
    : problem_(problem),
      bound_(bound),
      exchange_(exchange),
      stages_(problem.stages),
      count_(problem.replicas) {
  segments_.resize(size_t{count_} * stages_ * stages_);
  up_to_.resize(size_t{count_} * stages_);
  from_.resize(size_t{count_} * stages_);
  passes_.resize(count_);
  columns_.resize(stages_);
  columns_without_.resize(size_t{stages_} * count_);
  counted_.assign(size_t{stages_} * count_, std::numeric_limits<uint32_t>::max());
}

void Descent::Total::AddPasses(double seconds) {
  longest_passes = std::max(longest_passes, seconds);
  all_passes += seconds;
}

void Descent::Total::AddStage(double transfer, double own_latency) {
  longest_transfer = std::max(longest_transfer, transfer);
  all_transfers += transfer;
  latency = std::max(latency, own_latency);
}

double Descent::ValueOf(const Total& total) const {
  if (count_ == 1) return total.longest_passes;
  const double even =
      total.all_passes / count_ + exchange_.Seconds(total.all_transfers / stages_, 0);
  return total.longest_passes + exchange_.Seconds(total.longest_transfer, total.latency) +
         kWeightOfMean * even;
}

void Descent::Set(PlacedReplicas replicas) {
  replicas_ = std::move(replicas);
  spares_.clear();
  std::vector<bool> taken(problem_.workers.size());
  for (const PlacedChain& chain : replicas_) {
    for (const uint32_t worker : chain.workers) taken[worker] = true;
  }
  for (uint32_t w = 0; w < taken.size(); ++w) {
    if (!taken[w]) spares_.push_back(w);
  }
  for (uint32_t r = 0; r < count_; ++r) Rebuild(r);
  Recount();
}

double Descent::bound() const {
  double passes = 0;
  for (const PlacedChain& chain : replicas_) passes = std::max(passes, bound_.Of(chain));
  return passes + exchange_.Of(replicas_);
}

void Descent::Go(uint64_t most_moves) {
  for (bool gained = true; gained && moves_ < most_moves;) {
    gained = ExchangeWithSpares();
    gained |= MoveParts();
    gained |= SwapAndReverse();
    gained |= MoveLayers();
    if (count_ == 1) continue;
    gained |= SwapCells();
    gained |= ExchangeParts();
  }
}

void Descent::Rebuild(uint32_t replica) {
  const auto at = [&](uint32_t begin, uint32_t end) -> Segment& {
    return segments_[(replica * stages_ + begin) * stages_ + end];
  };
  for (uint32_t s = 0; s < stages_; ++s) {
    at(s, s) = bound_.Stage(WorkerAt(replica, s), LayersAt(s), ChainRole::kMiddle);
  }
  for (uint32_t from = 0; from < stages_; ++from) {
    for (uint32_t to = from + 1; to < stages_; ++to) {
      at(from, to) = bound_.Join(at(from, to - 1), at(to, to));
    }
    for (uint32_t to = from; to-- > 0;) at(from, to) = bound_.Join(at(from, to + 1), at(to, to));
  }
  Segment* const up_to = &up_to_[replica * stages_];
  Segment* const from = &from_[replica * stages_];
  for (uint32_t place = 0; place < stages_; ++place) {
    const Segment own = InPlace(place, WorkerAt(replica, place));
    up_to[place] = place == 0 ? own : bound_.Join(up_to[place - 1], own);
  }
  for (uint32_t place = stages_; place-- > 0;) {
    const Segment own = InPlace(place, WorkerAt(replica, place));
    from[place] = chain::IsLast(place, stages_) ? own : bound_.Join(own, from[place + 1]);
  }
}

void Descent::Recount() {
  Total total;
  for (uint32_t r = 0; r < count_; ++r) {
    passes_[r] = PassesOf(UpTo(r, chain::LastStage(stages_)));
    total.AddPasses(passes_[r]);
  }
  for (uint32_t s = 0; count_ > 1 && s < stages_; ++s) {
    RecountColumn(s);
    total.AddStage(exchange_.Bytes(bound_.RoleAt(s), LayersAt(s)) * columns_[s].seconds_per_byte,
                   columns_[s].latency);
  }
  value_ = ValueOf(total);
}

// The pieces in a row. Stages at the ends have other roles, and are joined by themselves.
double Descent::PassesInPieces(uint32_t replica, const Pieces& pieces) const {
  const std::vector<uint32_t>& workers = replicas_[replica].workers;
  const auto layers_of = [&](const Piece& piece, uint32_t place) {
    return piece.new_layers > 0 ? piece.new_layers : LayersAt(place);
  };
  const Piece& head = pieces.of[0];
  const Piece& tail = pieces.of[pieces.count - 1];
  const uint32_t first = workers[head.begin], first_layers = layers_of(head, head.begin);
  const uint32_t last = workers[tail.end];
  Segment whole = bound_.Stage(first, first_layers, ChainRole::kFirst);
  for (size_t p = 0; p < pieces.count; ++p) {
    const Piece& piece = pieces.of[p];
    const bool from_head = p == 0, to_tail = p + 1 == pieces.count;
    if (piece.new_layers > 0) {
      if (!from_head && !to_tail) {
        whole = bound_.Join(
            whole, bound_.Stage(workers[piece.begin], piece.new_layers, ChainRole::kMiddle));
      }
      continue;
    }
    const int step = piece.begin <= piece.end ? 1 : -1;
    const int begin = static_cast<int>(piece.begin) + (from_head ? step : 0);
    const int end = static_cast<int>(piece.end) - (to_tail ? step : 0);
    if ((end - begin) * step < 0) continue;
    whole = bound_.Join(whole,
                        Along(replica, static_cast<uint32_t>(begin), static_cast<uint32_t>(end)));
  }
  whole = bound_.Join(whole, bound_.Stage(last, layers_of(tail, tail.end), ChainRole::kLast));
  return whole.Bound() + bound_.After(first, first_layers, last);
}

double Descent::PassesWith(uint32_t replica, uint32_t place, uint32_t worker) const {
  Segment whole = InPlace(place, worker);
  if (place > 0) whole = bound_.Join(UpTo(replica, place - 1), whole);
  if (place + 1 < stages_) whole = bound_.Join(whole, From(replica, place + 1));
  return PassesOf(whole);
}

double Descent::PassesSwapped(uint32_t replica, uint32_t one, uint32_t other) const {
  Segment whole = InPlace(one, WorkerAt(replica, other));
  if (one > 0) whole = bound_.Join(UpTo(replica, one - 1), whole);
  if (one + 1 < other) whole = bound_.Join(whole, Along(replica, one + 1, other - 1));
  whole = bound_.Join(whole, InPlace(other, WorkerAt(replica, one)));
  if (other + 1 < stages_) whole = bound_.Join(whole, From(replica, other + 1));
  return PassesOf(whole);
}

double Descent::PassesWithPart(uint32_t replica, uint32_t other, uint32_t begin,
                               uint32_t end) const {
  const bool to_last = end + 1 == stages_;
  Segment whole = begin == 0 ? UpTo(other, end)
                  : to_last  ? From(other, begin)
                             : Along(other, begin, end);
  if (begin > 0) whole = bound_.Join(UpTo(replica, begin - 1), whole);
  if (!to_last) whole = bound_.Join(whole, From(replica, end + 1));
  return PassesOf(whole);
}

// The column at `place` with this worker for that replica.
Descent::Column Descent::ColumnWith(uint32_t place, uint32_t replica, uint32_t worker) const {
  std::array<uint32_t, replicas::kMostReplicas> others;
  size_t count = 0;
  for (uint32_t r = 0; r < count_; ++r) {
    if (r != replica) others[count++] = WorkerAt(r, place);
  }
  return exchange_.With(columns_without_[size_t{place} * count_ + replica],
                        std::span(others).first(count), worker);
}

// Without a worker that neither the slowest pair nor the slowest interface has, a column is as with
// it: most moves then look at one row of pairs and not at all of them.
void Descent::RecountColumn(uint32_t place) {
  const std::span counted = std::span(counted_).subspan(size_t{place} * count_, count_);
  bool has_changed = false;
  for (uint32_t r = 0; r < count_; ++r) {
    has_changed |= counted[r] != WorkerAt(r, place);
    counted[r] = WorkerAt(r, place);
  }
  if (!has_changed) return;
  std::array<uint32_t, replicas::kMostReplicas> workers;
  const auto column_of_all_but = [&](uint32_t without) {
    Column column;
    size_t count = 0;
    for (uint32_t r = 0; r < count_; ++r) {
      if (r == without) continue;
      column = exchange_.With(column, std::span(workers).first(count), counted[r]);
      workers[count++] = counted[r];
    }
    return column;
  };
  const Column all = columns_[place] = column_of_all_but(count_);
  for (uint32_t r = 0; r < count_; ++r) {
    Column own = exchange_.With({}, {}, counted[r]);
    for (uint32_t other = 0; other < count_; ++other) {
      if (other != r) own = exchange_.With(own, {&counted[other], 1}, counted[r]);
    }
    const bool decides = own.seconds_per_byte == all.seconds_per_byte || own.latency == all.latency;
    columns_without_[size_t{place} * count_ + r] = decides ? column_of_all_but(r) : all;
  }
}

double Descent::Judge(const Pieces& pieces) {
  ++moves_;
  Total total;
  for (uint32_t r = 0; r < count_; ++r) {
    total.AddPasses(PassesInPieces(r, pieces));
    if (!(total.longest_passes < value_)) return kNoChain;
  }
  if (count_ == 1) return ValueOf(total);
  uint32_t place = 0;  // after the move
  for (size_t p = 0; p < pieces.count; ++p) {
    const Piece& piece = pieces.of[p];
    const int step = piece.begin <= piece.end ? 1 : -1;
    for (int from = static_cast<int>(piece.begin);; from += step, ++place) {
      const auto column = static_cast<uint32_t>(from);
      const uint32_t layers = piece.new_layers > 0 ? piece.new_layers : LayersAt(column);
      total.AddStage(
          exchange_.Bytes(bound_.RoleAt(place), layers) * columns_[column].seconds_per_byte,
          columns_[column].latency);
      if (column == piece.end) break;
    }
    ++place;
  }
  return ValueOf(total);
}

double Descent::JudgeCells(std::span<const ChangedChain> chains,
                           std::span<const ChangedColumn> columns) {
  ++moves_;
  Total total;
  for (const ChangedChain& chain : chains) {
    if (!(chain.passes < value_)) return kNoChain;
  }
  for (uint32_t r = 0; r < count_; ++r) {
    double passes = passes_[r];
    for (const ChangedChain& chain : chains) passes = chain.replica == r ? chain.passes : passes;
    total.AddPasses(passes);
  }
  for (uint32_t s = 0; count_ > 1 && s < stages_; ++s) {
    const Column* column = &columns_[s];
    for (const ChangedColumn& changed : columns) {
      if (changed.place == s) column = &changed.column;
    }
    total.AddStage(exchange_.Bytes(bound_.RoleAt(s), LayersAt(s)) * column->seconds_per_byte,
                   column->latency);
  }
  return ValueOf(total);
}

bool Descent::Try(const Pieces& pieces) {
  if (!(Judge(pieces) < value_ * kMoveGains)) return false;
  for (PlacedChain& chain : replicas_) {
    PlacedChain next;
    for (size_t p = 0; p < pieces.count; ++p) {
      const Piece& piece = pieces.of[p];
      const int step = piece.begin <= piece.end ? 1 : -1;
      for (int from = static_cast<int>(piece.begin);; from += step) {
        const auto place = static_cast<uint32_t>(from);
        next.workers.push_back(chain.workers[place]);
        next.layers.push_back(piece.new_layers > 0 ? piece.new_layers : chain.layers[place]);
        if (place == piece.end) break;
      }
    }
    chain = std::move(next);
  }
  for (uint32_t r = 0; r < count_; ++r) Rebuild(r);
  Recount();
  return true;
}

bool Descent::SwapAndReverse() {
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

// Up to three stages move, either way round, to before the one at `to`.
bool Descent::MoveParts() {
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

bool Descent::MoveLayers() {
  bool gained = false;
  for (uint32_t i = 0; i < stages_; ++i) {
    for (uint32_t j = 0; j < stages_; ++j) {
      if (i == j || LayersAt(i) < 2) continue;
      const Piece less{.begin = i, .end = i, .new_layers = LayersAt(i) - 1};
      const Piece more{.begin = j, .end = j, .new_layers = LayersAt(j) + 1};
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

bool Descent::ExchangeWithSpares() {
  bool gained = false;
  for (uint32_t r = 0; r < count_; ++r) {
    for (uint32_t place = 0; place < stages_; ++place) {
      for (uint32_t& spare : spares_) {
        const ChangedChain chain{r, PassesWith(r, place, spare)};
        ChangedColumn column{.place = place};
        if (count_ > 1 && chain.passes < value_) column.column = ColumnWith(place, r, spare);
        if (!(JudgeCells({&chain, 1}, {&column, 1}) < value_ * kMoveGains)) continue;
        std::swap(replicas_[r].workers[place], spare);
        Rebuild(r);
        Recount();
        gained = true;
      }
    }
  }
  return gained;
}

bool Descent::SwapCells() {
  bool gained = false;
  const uint32_t cells = count_ * stages_;
  for (uint32_t one = 0; one < cells; ++one) {
    for (uint32_t other = one + 1; other < cells; ++other) {
      gained |= TrySwap(one / stages_, one % stages_, other / stages_, other % stages_);
    }
  }
  return gained;
}

bool Descent::TrySwap(uint32_t replica, uint32_t place, uint32_t other_replica,
                      uint32_t other_place) {
  const uint32_t worker = WorkerAt(replica, place);
  const uint32_t other = WorkerAt(other_replica, other_place);
  std::array<ChangedChain, 2> chains;
  size_t changed = 1;
  if (replica == other_replica) {
    chains[0] = {replica, PassesSwapped(replica, place, other_place)};
  } else {
    chains[0] = {replica, PassesWith(replica, place, other)};
    chains[1] = {other_replica, PassesWith(other_replica, other_place, worker)};
    changed = 2;
  }
  std::array<ChangedColumn, 2> columns;
  size_t columns_changed = 0;
  if (place != other_place && std::max(chains[0].passes, chains[1].passes) < value_) {
    columns[0] = {place, ColumnWith(place, replica, other)};
    columns[1] = {other_place, ColumnWith(other_place, other_replica, worker)};
    columns_changed = 2;
  }
  if (!(JudgeCells(std::span(chains).first(changed), std::span(columns).first(columns_changed)) <
        value_ * kMoveGains)) {
    return false;
  }
  std::swap(replicas_[replica].workers[place], replicas_[other_replica].workers[other_place]);
  Rebuild(replica);
  if (other_replica != replica) Rebuild(other_replica);
  Recount();
  return true;
}

// Exchanges parts between two replicas within their columns; so no column changes.
bool Descent::ExchangeParts() {
  bool gained = false;
  for (uint32_t one = 0; one < count_; ++one) {
    for (uint32_t other = one + 1; other < count_; ++other) {
      for (uint32_t begin = 0; begin < stages_; ++begin) {
        // One worker is a swap, and all of them change nothing.
        for (uint32_t end = begin + 1; end < stages_ - (begin == 0 ? 1 : 0); ++end) {
          const std::array<ChangedChain, 2> chains = {
              ChangedChain{one, PassesWithPart(one, other, begin, end)},
              ChangedChain{other, PassesWithPart(other, one, begin, end)}};
          if (!(JudgeCells(chains, {}) < value_ * kMoveGains)) continue;
          std::swap_ranges(replicas_[one].workers.begin() + begin,
                           replicas_[one].workers.begin() + end + 1,
                           replicas_[other].workers.begin() + begin);
          Rebuild(one);
          Rebuild(other);
          Recount();
          gained = true;
        }
      }
    }
  }
  return gained;
}

}  // namespace longhaul::coordinator
