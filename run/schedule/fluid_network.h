// The network of a simulated pipeline. Transfers that use an interface at the same time share its
// rate max-min fairly. Besides, each ordered pair of workers has a maximum rate of its own.
//
// A link is one direction between two stages, and carries one transfer at a time. Times are seconds
// on the caller's clock and must not decrease. One thread at a time; no errors; allocates nothing
// after construction. Arguments are not checked.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "base/ids.h"
#include "run/schedule/cost.h"

namespace longhaul::schedule {

// The index of the link that is one direction of a boundary. The two links of PipelineCost::tied
// come after all others, as if there were one more boundary.
constexpr uint32_t LinkIndex(uint32_t boundary, Direction direction) {
  return 2 * boundary + (direction == Direction::kForward ? 0 : 1);
}

class FluidNetwork {
 public:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  // `cost` must be one that Simulate() accepts. Keeps no reference to `cost`.
  explicit FluidNetwork(const PipelineCost& cost);
  FluidNetwork(const FluidNetwork&) = delete;  // transfers point to interfaces
  FluidNetwork& operator=(const FluidNetwork&) = delete;

  // Begins a transfer on an idle link. The transfer gets its rate with the next Share().
  void Start(uint32_t link, double bytes, double now);
  // Ends the link's transfer. Call it at the time of ends(), when the last byte has left.
  void End(uint32_t link);
  // Computes all transfers' rates anew. Call it once all transfers that start or end at `now` have
  // been started or ended.
  void Share(double now);

  bool busy(uint32_t link) const { return transfers_[link].busy; }
  // Returns the time at which the transfer of each link ends, provided that no other transfer
  // starts or ends before that time. kNever: the link is idle.
  const std::vector<double>& ends() const { return ends_; }

 private:
  // One direction of an interface: the rate that is left, and the transfers that have no share yet.
  struct Interface {
    double bytes_per_second = kNever;
    double left = 0;
    uint32_t open = 0;
    double least = 0;  // lowest possible share of one of these transfers
    double each() const { return left / open; }
  };
  struct Transfer {
    Interface *egress = nullptr, *ingress = nullptr;
    double cap = kNever;  // bytes per second
    bool busy = false;
    double remaining_bytes = 0, since = 0, rate = 0;
    double most = 0;  // highest possible rate while it has no share
  };

  static double MostOf(const Transfer& transfer);
  void SetRate(uint32_t link, double rate, double now);

  std::vector<Interface> egress_, ingress_;
  std::vector<Transfer> transfers_;  // by link
  std::vector<double> ends_;
  std::vector<uint32_t> open_;  // used by Share()
  double shared_efficiency_ = 1;
  bool changed_ = false;
};

}  // namespace longhaul::schedule
