// The network of a simulated pipeline: concurrent transfers between neighbours share interfaces
// max-min fairly, and each ordered pair of workers has its own cap.
//
// A link direction carries one transfer at a time. Times are seconds on the caller's clock and
// never go back. Pure; allocates nothing after construction.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "base/ids.h"
#include "run/schedule/cost.h"

namespace longhaul::schedule {

// The index of the link that is one direction of a boundary. A tied matrix has two links, after
// those of the last boundary.
constexpr uint32_t LinkIndex(uint32_t boundary, Direction direction) {
  return 2 * boundary + (direction == Direction::kForward ? 0 : 1);
}

class FluidNetwork {
 public:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  // `cost` must be one that Simulate() accepts.
  explicit FluidNetwork(const PipelineCost& cost);
  FluidNetwork(const FluidNetwork&) = delete;  // transfers point to interfaces
  FluidNetwork& operator=(const FluidNetwork&) = delete;

  // Begins a transfer on an idle link. The transfer gets its rate with the next Share().
  void Start(uint32_t link, double bytes, double now);
  // Ends the link's transfer, whose last byte has left.
  void End(uint32_t link);
  // Divides the rates of the network anew. Call it after all starts and ends at `now`, before time
  // goes on.
  void Share(double now);

  bool busy(uint32_t link) const { return transfers_[link].busy; }
  // The time at which each link's transfer ends if nothing changes; kNever for an idle link.
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
