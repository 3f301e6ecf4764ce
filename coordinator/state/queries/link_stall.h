// Finds from the stages' reports of a step what each direction of a link waited for. Also finds how
// much of the planned rate of each worker's network interface was used. Pure functions.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "longhaul/v1/worker.pb.h"

namespace longhaul::coordinator {

// One direction of a link in a step. The caller numbers the stages from 0; the lists below are
// indexed by these numbers.
struct DirectionInUse {
  size_t from = 0, to = 0;
  const v1::StepReport* sender = nullptr;  // report of stage `from`; not null
  const v1::LinkUse* use = nullptr;        // this direction in the sender's report; not null
};

// What a stage sent and received in a step, as shares of the planned rates of its worker's network
// interface; 1 is all of the rate. nullopt: the rate is unknown, or there is no report.
struct InterfaceUse {
  std::optional<double> egress, ingress;
  friend bool operator==(const InterfaceUse&, const InterfaceUse&) = default;
};

// Returns how much of each stage's interface all `directions` together use, for stages 0 to
// `stages` - 1. `egress_rates` and `ingress_rates` are the planned rates in bits a second, by
// stage; 0 or missing: unknown.
std::vector<InterfaceUse> UseOfInterfaces(size_t stages, std::span<const DirectionInUse> directions,
                                          std::span<const double> egress_rates,
                                          std::span<const double> ingress_rates);

// Returns what kept the direction from sending more, by what took the longest part of the step.
// `interfaces` is the result of UseOfInterfaces.
//   "credits"  waiting for credits (flow control) of the receiver
//   "egress"   sending, and the sender's interface was no less busy than the receiver's
//   "ingress"  sending, and the receiver's interface was busier
//   "compute"  idle, and the sender mostly computed
//   "codec"    idle, and the sender mostly waited for its own codec
//   "input"    idle, and the sender mostly waited for tensors itself
// "": the report has no time of the step.
std::string_view StallOf(const DirectionInUse& direction, std::span<const InterfaceUse> interfaces);

}  // namespace longhaul::coordinator
