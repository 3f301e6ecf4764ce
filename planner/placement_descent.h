// One descent of the local search for a placement: makes moves that each shorten the lower bound of
// a step, until no move does. Private to placement*.cc; for one thread.
//
// A move is a small change of the placement. Moves of stages act on all replicas at once: swap two
// stages with their layers, move up to three stages elsewhere, reverse a part of the chain, or move
// one layer to another stage. Moves of workers: replace a worker by a spare (a worker without a
// stage); with several replicas also swap any two workers, or exchange the same part of two
// replicas' chains. A table keeps the bounds of all segments of each chain, so few joins of
// segments give the bound after a move (chain_bound.h).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "planner/chain_bound.h"
#include "planner/placement.h"

namespace longhaul::coordinator {

// A move gains only if the new value is below this multiple of the old one. Smaller differences may
// come from rounding, as doubles are added in another order.
inline constexpr double kMoveGains = 1 - 1e-9;

class Descent {
 public:
  // Keeps references to all three arguments.
  Descent(const PlacementProblem& problem, const ChainBound& bound, const ExchangeBound& exchange);

  // Sets the placement from which the next descent begins.
  void Set(PlacedReplicas replicas);
  // Descends until no move gains, or until all calls on this object together have judged
  // `most_moves` moves.
  void Go(uint64_t most_moves);

  const PlacedReplicas& replicas() const { return replicas_; }
  // The bound of a step in seconds (BoundOf); kNoChain for an impossible placement.
  double bound() const;
  // Moves judged so far by all calls of Go().
  uint64_t moves() const { return moves_; }

 private:
  // The stages from `begin` to `end` of each chain, both included; in reverse order if `begin` is
  // larger. Or the stage `begin` with other layers.
  struct Piece {
    uint32_t begin = 0, end = 0;
    uint32_t new_layers = 0;  // 0: unchanged
  };
  // A chain after a move, in pieces. Five suffice: two stages with other layers, and the parts of
  // the chain around them.
  struct Pieces {
    std::array<Piece, 5> of;
    size_t count = 0;
    void Add(uint32_t begin, uint32_t end) { of[count++] = {.begin = begin, .end = end}; }
    // Adds indices [begin, end), which may be empty.
    void AddRange(uint32_t begin, uint32_t end) {
      if (begin < end) Add(begin, end - 1);
    }
  };
  // The parts of the value that a descent lowers. The value is the bound and, with several
  // replicas, a small share of means over replicas and stages. So a move also gains if it improves
  // only replicas or stages that are not the slowest.
  struct Total {
    double longest_passes = 0, all_passes = 0;       // over replicas
    double longest_transfer = 0, all_transfers = 0;  // over stages
    double latency = 0;
    void AddPasses(double seconds);
    void AddStage(double transfer, double latency);
  };
  using Column = ExchangeBound::Column;

  const Segment& Along(uint32_t replica, uint32_t begin, uint32_t end) const {
    return segments_[(replica * stages_ + begin) * stages_ + end];
  }
  uint32_t WorkerAt(uint32_t replica, uint32_t place) const {
    return replicas_[replica].workers[place];
  }
  uint32_t LayersAt(uint32_t place) const { return replicas_.front().layers[place]; }
  // The segment of a worker as the stage `place`, in this stage's role.
  Segment InPlace(uint32_t place, uint32_t worker) const {
    return bound_.Stage(worker, LayersAt(place), bound_.RoleAt(place));
  }
  // The segments up to a stage and from a stage on, with the chain's ends in their roles.
  const Segment& UpTo(uint32_t replica, uint32_t place) const {
    return up_to_[replica * stages_ + place];
  }
  const Segment& From(uint32_t replica, uint32_t place) const {
    return from_[replica * stages_ + place];
  }
  double PassesOf(const Segment& whole) const {
    return whole.Bound() + bound_.After(whole.first, LayersAt(0), whole.last);
  }

  void Rebuild(uint32_t replica);
  void Recount();  // passes, columns and value
  double ValueOf(const Total& total) const;

  // Seconds of one replica's passes after a move.
  double PassesInPieces(uint32_t replica, const Pieces& pieces) const;
  double PassesWith(uint32_t replica, uint32_t place, uint32_t worker) const;
  double PassesSwapped(uint32_t replica, uint32_t one, uint32_t other) const;
  // The same, with the other replica's workers at indices [begin, end].
  double PassesWithPart(uint32_t replica, uint32_t other, uint32_t begin, uint32_t end) const;
  Column ColumnWith(uint32_t place, uint32_t replica, uint32_t worker) const;
  void RecountColumn(uint32_t place);

  // The value after a move. kNoChain if it is certainly not better.
  double Judge(const Pieces& pieces);
  struct ChangedChain {
    uint32_t replica = 0;
    double passes = 0;
  };
  struct ChangedColumn {
    uint32_t place = 0;
    Column column;
  };
  // The value after a move that changes these chains and columns only, at most two of each.
  double JudgeCells(std::span<const ChangedChain> chains, std::span<const ChangedColumn> columns);

  bool Try(const Pieces& pieces);
  bool SwapAndReverse();
  bool MoveParts();
  bool MoveLayers();
  bool ExchangeWithSpares();
  bool SwapCells();
  bool TrySwap(uint32_t replica, uint32_t place, uint32_t other_replica, uint32_t other_place);
  bool ExchangeParts();

  const PlacementProblem& problem_;
  const ChainBound& bound_;
  const ExchangeBound& exchange_;
  const uint32_t stages_, count_;  // count_: replicas
  PlacedReplicas replicas_;
  double value_ = kNoChain;
  std::vector<uint32_t> spares_;
  // Segments of each part of each chain, in both directions, with all stages in the middle role.
  std::vector<Segment> segments_;
  std::vector<Segment> up_to_, from_;
  std::vector<double> passes_;   // by replica
  std::vector<Column> columns_;  // by stage
  // Each column without one replica's worker: [place * count_ + replica].
  std::vector<Column> columns_without_;
  std::vector<uint32_t>
      counted_;  // the workers for which columns_ hold: [place * count_ + replica]
  uint64_t moves_ = 0;
};

}  // namespace longhaul::coordinator
