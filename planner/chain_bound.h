// Computes a lower bound of the step time of a chain of workers (the stages of one replica, in
// order). The bound is put together from bounds of segments, which are consecutive stages; joining
// two segments takes constant time. Pure; private to placement*.cc.
//
// The busiest resource bounds the passes, which are all forwards and backwards of a step. For a
// stage or its network interface the bound is the time until the first microbatch arrives there,
// plus the time of all microbatches there, plus the time for the last one to come back. For one
// direction of a boundary it is one microbatch's way through the chain and back, plus the transfer
// of all others. The bound of two joined segments follows from the bounds of both and from the
// boundary between them, so the bound of a changed chain needs only joins between changed stages
// and unchanged segments. After the passes of the slowest replica, replicas exchange gradients and
// parameters: ExchangeBound.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "planner/placement.h"
#include "planner/replicas.h"

namespace longhaul::coordinator {

// Bound of chains that do not fit in memory or whose workers cannot be neighbours.
inline constexpr double kNoChain = std::numeric_limits<double>::infinity();
// While segments are joined, each stage that does not fit and each pair that cannot be neighbours
// counts as this many seconds. So a search can tell which of two impossible chains is nearer to a
// possible one.
inline constexpr double kImpossibleSeconds = 1e9;
constexpr bool IsPossible(double seconds) {
  return seconds < kImpossibleSeconds / 2;
}

// Consecutive stages of a chain. Times in seconds.
struct Segment {
  double round = 0;  // one microbatch down through the segment and back up
  double stage = 0;  // largest bound of a stage or interface, with the way there and back
  double wire = 0;   // largest transfer time of a boundary inside, of all microbatches but one
  uint32_t first = 0, last = 0;  // workers at its ends

  double Bound() const { return stage > round + wire ? stage : round + wire; }
};

// Bounds of chains. Workers are indices into PlacementProblem::workers.
class ChainBound {
 public:
  // Keeps a reference to `problem`, which must be valid (Place() checks it).
  explicit ChainBound(const PlacementProblem& problem);

  // The segment of one worker as one stage. If the stage does not fit, the times are
  // kImpossibleSeconds.
  Segment Stage(uint32_t worker, uint32_t layers, ChainRole role) const {
    const std::vector<Segment>& by_layers =
        by_layers_[worker * kChainRoles + static_cast<size_t>(role)];
    if (layers == 0 || layers > by_layers.size()) return Impossible(worker);
    return by_layers[layers - 1];
  }
  // The segment of `upper` and, below it, `lower`.
  Segment Join(const Segment& upper, const Segment& lower) const {
    const Boundary& between = boundaries_[upper.last * workers_ + lower.first];
    const double way = upper.round + between.round;
    Segment joined;
    joined.round = way + lower.round;
    joined.stage = upper.stage > way + lower.stage ? upper.stage : way + lower.stage;
    joined.wire = upper.wire > lower.wire ? upper.wire : lower.wire;
    if (between.wire > joined.wire) joined.wire = between.wire;
    joined.first = upper.first;
    joined.last = lower.last;
    return joined;
  }
  // Seconds from the end of a chain's passes to the end of its step. The first stage sends its data
  // of a tied matrix to the last stage, and runs its optimizer. kImpossibleSeconds: the two workers
  // cannot hold a tied matrix.
  double After(uint32_t first, uint32_t first_layers, uint32_t last) const;
  // Bound of one chain in seconds: its passes, and After(). kNoChain: the chain is impossible.
  double Of(const PlacedChain& chain) const;

  // The role of the stage with index `place` in its chain.
  ChainRole RoleAt(uint32_t place) const { return coordinator::RoleAt(place, problem_.stages); }
  // Seconds for one microbatch down the boundary and back up, and then for the transfer of all
  // other microbatches in the slower direction.
  double BoundarySeconds(uint32_t upper, uint32_t lower) const {
    const Boundary& between = boundaries_[upper * workers_ + lower];
    return between.round + between.wire;
  }

 private:
  struct Boundary {
    double round = 0, wire = 0;
  };
  static Segment Impossible(uint32_t worker) {
    return {
        .round = kImpossibleSeconds, .stage = kImpossibleSeconds, .first = worker, .last = worker};
  }

  const PlacementProblem& problem_;
  const size_t workers_;
  std::vector<std::vector<Segment>> by_layers_;  // [worker * kChainRoles + role][layers - 1]
  std::vector<Boundary> boundaries_;             // [upper * workers + lower]
};

// The bound of the exchange among replicas: the slowest stage counts. A column is the set of
// workers that hold one stage, one of each replica.
class ExchangeBound {
 public:
  // Keeps a reference to `problem`.
  explicit ExchangeBound(const PlacementProblem& problem);

  struct Column {
    // For each byte that one replica sends another. kImpossibleSeconds: two workers of the column
    // cannot exchange.
    double seconds_per_byte = 0;
    double latency = 0;  // seconds; the longest, one way
  };
  // The column of two workers.
  Column Between(uint32_t one, uint32_t other) const { return pairs_[one * workers_ + other]; }
  // Adds `worker` to `column`, the column of the workers `others`. The slowest pair or interface
  // counts. An interface carries the bytes to all others.
  Column With(const Column& column, std::span<const uint32_t> others, uint32_t worker) const {
    Column all = column;
    all.seconds_per_byte = std::max(all.seconds_per_byte, interfaces_[worker]);
    for (const uint32_t other : others) {
      const Column& pair = pairs_[worker * workers_ + other];
      all.seconds_per_byte = std::max(all.seconds_per_byte, pair.seconds_per_byte);
      all.latency = std::max(all.latency, pair.latency);
    }
    return all;
  }
  // Bytes that one replica of a stage sends every other replica in an exchange.
  double Bytes(ChainRole role, uint32_t layers) const {
    const std::vector<double>& bytes = problem_.exchange.bytes[static_cast<size_t>(role)];
    return bytes[std::min<size_t>(layers, bytes.size()) - 1];
  }
  // Seconds in a step for an exchange with this longest transfer (in seconds) and latency. If
  // replicas exchange once in several steps, each step has its share.
  double Seconds(double transfer, double latency) const {
    return (transfer + problem_.exchange.messages * latency) / problem_.exchange.every;
  }
  // Bound of the exchange of all stages, in seconds of a step. 0: fewer than two replicas.
  // kNoChain: two workers of a column cannot exchange.
  double Of(const PlacedReplicas& replicas) const;

 private:
  const PlacementProblem& problem_;
  const size_t workers_;
  std::vector<Column> pairs_;       // [one * workers + other], the slower direction
  std::vector<double> interfaces_;  // [worker]: seconds for a byte to each other replica
};

}  // namespace longhaul::coordinator
