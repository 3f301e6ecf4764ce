// Finds what the directions of links wait for, and how much of the planned rate of workers'
// interfaces is used, from the stages' reports of a step. Pure functions.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "longhaul/v1/worker.pb.h"

namespace longhaul::coordinator {

// One direction of a link in a step. The caller numbers the stages; the two spans of rates use the
// same numbers.
struct DirectionInUse {
  size_t from = 0, to = 0;
  const v1::StepReport* sender = nullptr;  // report of stage `from`
  const v1::LinkUse* use = nullptr;        // this direction in that report
};

// Shares of the planned rates of a stage's interface. nullopt: the rate is unknown, or there is no
// report.
struct InterfaceUse {
  std::optional<double> egress, ingress;
  friend bool operator==(const InterfaceUse&, const InterfaceUse&) = default;
};

// The use of each stage's interface by all `directions`. Rates in bits a second, by stage; 0 or
// missing: unknown.
std::vector<InterfaceUse> UseOfInterfaces(size_t stages, std::span<const DirectionInUse> directions,
                                          std::span<const double> egress_rates,
                                          std::span<const double> ingress_rates);

// Returns what kept the direction from sending more in the step:
//   "credits"  the receiver took no more, longer than anything else
//   "egress"   it was sending, and of the two interfaces the sender's is the busier one
//   "ingress"  it was sending, and the receiver's is
//   "compute"  there was nothing to send: the sender computed
//   "codec"    there was nothing to send: the sender waited for its own codec
//   "input"    there was nothing to send: the sender waited for tensors itself
// "" if the report does not tell.
std::string_view StallOf(const DirectionInUse& direction, std::span<const InterfaceUse> interfaces);

}  // namespace longhaul::coordinator
