// The wire under a simulated pipeline: transfers between neighbours that share interfaces and pairs
// max-min fairly.
//
// A link direction carries one transfer at a time. Times are seconds on the caller's clock and
// never go back. Pure; allocates nothing after construction.
#ifndef LONGHAUL_RUN_SCHEDULE_FLUID_NETWORK_H_
#define LONGHAUL_RUN_SCHEDULE_FLUID_NETWORK_H_

#include <cstdint>
#include <limits>
#include <vector>

#include "base/ids.h"
#include "run/schedule/cost.h"

namespace longhaul::schedule {

// Of the two directions of a boundary. A tied matrix has those behind the last boundary.
constexpr uint32_t LinkIndex(uint32_t boundary, Direction direction) {
  return 2 * boundary + (direction == Direction::kForward ? 0 : 1);
}

class FluidNetwork {
 public:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  // `cost` is one that Simulate() accepts.
  explicit FluidNetwork(const PipelineCost& cost);
  FluidNetwork(const FluidNetwork&) = delete;  // transfers point to interfaces
  FluidNetwork& operator=(const FluidNetwork&) = delete;

  // `link` carries nothing. Its transfer has a share once Share() was called.
  void Start(uint32_t link, double bytes, double now);
  // What it carried has left.
  void End(uint32_t link);
  // Before time goes on, after whatever was started and ended at `now`.
  void Share(double now);

  bool busy(uint32_t link) const { return transfers_[link].busy; }
  // When each link's transfer will have left, as things stand; kNever where there is none.
  const std::vector<double>& ends() const { return ends_; }

 private:
  // What an interface has left for how many transfers without a share.
  struct Interface {
    double bytes_per_second = kNever;
    double left = 0;
    uint32_t open = 0;
    double least = 0;  // that one of them might get
    double each() const { return left / open; }
  };
  struct Transfer {
    Interface *egress = nullptr, *ingress = nullptr;
    double cap = kNever;  // bytes per second
    bool busy = false;
    double remaining_bytes = 0, since = 0, rate = 0;
    double most = 0;  // that it might get, while it has no share
  };

  static double MostOf(const Transfer& transfer);
  void SetRate(uint32_t link, double rate, double now);

  std::vector<Interface> egress_, ingress_;
  std::vector<Transfer> transfers_;  // by link
  std::vector<double> ends_;
  std::vector<uint32_t> open_;  // of Share()
  double shared_efficiency_ = 1;
  bool changed_ = false;
};

}  // namespace longhaul::schedule

#endif  // LONGHAUL_RUN_SCHEDULE_FLUID_NETWORK_H_
