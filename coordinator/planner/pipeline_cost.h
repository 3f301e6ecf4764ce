// What a plan costs on a network whose rates are known, as run/schedule's simulator takes it: for
// the planner, and for whoever wants to predict a plan on other links. Pure.
//
//   network = UniformNetwork(plan.assignment, GoodputBytesPerSecond(100'000'000));
//   cost = PipelineCostOf(plan, spec, network);
//   simulation = schedule::Simulate(cost);
//
// Simulate(PipelineCostOf(plan, spec, NetworkOf(plan))) is the plan's own prediction.
#ifndef LONGHAUL_COORDINATOR_PLANNER_PIPELINE_COST_H_
#define LONGHAUL_COORDINATOR_PLANNER_PIPELINE_COST_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "run/file/run_spec.h"
#include "run/plan/plan.h"
#include "run/schedule/simulator.h"

namespace longhaul::coordinator {

// Goodput of a worker's interface, each way.
struct InterfaceRates {
  double egress_bytes_per_second = schedule::kUnlimited;
  double ingress_bytes_per_second = schedule::kUnlimited;
};

// Of one direction between two workers, beside what their interfaces can do.
struct FlowRates {
  double bytes_per_second = schedule::kUnlimited;
  absl::Duration latency;  // one way
};
struct LinkRates {
  FlowRates forward, backward;
};

// What a plan's data may take. schedule::FluidNetwork is what the simulator makes of it.
struct NetworkRates {
  std::vector<InterfaceRates> interfaces;  // as Assignment::cells
  std::vector<LinkRates> links;            // as Assignment::edges
};

// Every interface alike.
NetworkRates UniformNetwork(const Assignment& assignment, double bytes_per_second,
                            absl::Duration latency = absl::ZeroDuration());

// Of a measurement or of a plan, where 0 is a rate that is not known and counts as unlimited.
double BytesPerSecond(double bits_per_second);

// What TCP makes of a line of so many bits a second whose frames have 1,514 bytes, which is how tc
// counts: 1,448 bytes of each are payload, 95.6 %. 0: not shaped, unlimited.
double GoodputBytesPerSecond(uint64_t bits_per_second);

// An encoded tensor with the headers of the chunks that it travels in.
uint64_t WithChunkHeaders(uint64_t bytes);

// What the plan's prediction took, or is to take.
NetworkRates NetworkOf(const Plan& plan);
void SetNetwork(const NetworkRates& network, Plan* plan);

// What one direction of the edge in place `edge` carries while it has both interfaces to itself.
double AloneBytesPerSecond(const NetworkRates& network, const Assignment& assignment, size_t edge,
                           Direction direction);

// As many interfaces and links as the plan has cells and edges. Depths, codecs' times and the
// order of gradients are the plan's, and its slices, of which all take equally long; schedule and
// microbatches are the run's.
schedule::PipelineCost PipelineCostOf(const Plan& plan, const RunSpec& spec,
                                      const NetworkRates& network);

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_PLANNER_PIPELINE_COST_H_
