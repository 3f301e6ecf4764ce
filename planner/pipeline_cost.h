// Turns a plan and the rates of a network into the input of run/schedule's simulator, for the
// planner and for predictions of a plan on other links. Pure.
//
//   network = UniformNetwork(plan.assignment, GoodputBytesPerSecond(100'000'000));
//   cost = PipelineCostOf(plan, spec, network);
//   simulation = schedule::Simulate(cost);
//
// Simulate(PipelineCostOf(plan, spec, NetworkOf(plan))) is the plan's own prediction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "run/file/run_spec.h"
#include "run/plan/plan.h"
#include "run/schedule/simulator.h"

namespace longhaul::coordinator {

// Goodput of a worker's network interface, each way. kUnlimited: unknown, or no limit.
struct InterfaceRates {
  double egress_bytes_per_second = schedule::kUnlimited;
  double ingress_bytes_per_second = schedule::kUnlimited;
};

// Limits of one direction between two workers, in addition to their interfaces' limits. kUnlimited:
// unknown, or no limit of its own.
struct FlowRates {
  double bytes_per_second = schedule::kUnlimited;
  absl::Duration latency;  // one way; 0 if unknown
};
// Forward: from Edge::from to Edge::to.
struct LinkRates {
  FlowRates forward, backward;
};

// The network of a plan. The simulator makes a schedule::FluidNetwork from it.
struct NetworkRates {
  std::vector<InterfaceRates> interfaces;  // in the order of Assignment::cells
  std::vector<LinkRates> links;            // in the order of Assignment::edges
};

// A network whose interfaces all have this goodput each way, and whose links all have this one-way
// latency and no limit of their own.
NetworkRates UniformNetwork(const Assignment& assignment, double bytes_per_second,
                            absl::Duration latency = absl::ZeroDuration());

// Converts a rate of a measurement or a plan. 0 means unknown, and becomes unlimited.
double BytesPerSecond(double bits_per_second);

// Goodput of TCP on a line that tc limits to this rate. tc counts frames of 1,514 bytes, with 1,448
// bytes of payload: 95.6 %. 0: the line has no limit; returns schedule::kUnlimited.
double GoodputBytesPerSecond(uint64_t bits_per_second);

// Bytes of an encoded tensor with the headers of its chunks.
uint64_t WithChunkHeaders(uint64_t bytes);

// Returns the network on which the plan's prediction is based: the rates and latencies in the plan.
// A rate of 0 in the plan means unknown, and becomes unlimited.
NetworkRates NetworkOf(const Plan& plan);
// Writes the rates and latencies of `network` into the plan; unlimited becomes 0. Aborts if the
// network has another number of interfaces or links than the plan has cells or edges.
void SetNetwork(const NetworkRates& network, Plan* plan);

// The rate of one direction of an edge while no other edge uses its two interfaces. `edge` is the
// index in assignment.edges. schedule::kUnlimited: no rate is known.
double AloneBytesPerSecond(const NetworkRates& network, const Assignment& assignment, size_t edge,
                           Direction direction);

// Returns the simulator's input for a plan of one replica. Aborts if the plan has several replicas,
// or if `network` does not have as many interfaces and links as the plan has cells and edges. The
// plan gives depths, activation leads (Setting::activation_lead), codec times and slices; the run
// file gives schedule and microbatches. All slices are assumed to take equally long.
schedule::PipelineCost PipelineCostOf(const Plan& plan, const RunSpec& spec,
                                      const NetworkRates& network);

}  // namespace longhaul::coordinator
