// What a plan costs on a network whose rates are known, as base/schedule's simulator takes it: for
// the planner, and for whoever wants to predict a plan on other links. Pure.
//
//   cost = PipelineCostOf(plan, spec, UniformNetwork(stages, GoodputBytesPerSecond(100'000'000)));
//   simulation = schedule::Simulate(cost);
#ifndef LONGHAUL_COORDINATOR_PLANNER_PIPELINE_COST_H_
#define LONGHAUL_COORDINATOR_PLANNER_PIPELINE_COST_H_

#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "base/config/run_spec.h"
#include "base/schedule/simulator.h"
#include "longhaul/v1/plan.pb.h"

namespace longhaul::coordinator {

// Goodput of a worker's interface, each way.
struct InterfaceRates {
  double egress_bytes_per_second = schedule::kUnlimited;
  double ingress_bytes_per_second = schedule::kUnlimited;
};

struct Network {
  std::vector<InterfaceRates> interfaces;  // of each stage's worker
  std::vector<absl::Duration> latencies;   // one way, of each boundary; empty: none
};

// Every interface alike.
Network UniformNetwork(uint32_t stages, double bytes_per_second,
                       absl::Duration latency = absl::ZeroDuration());

// What TCP makes of a line of so many bits a second whose frames have 1,514 bytes, which is how tc
// counts: 1,448 bytes of each are payload, 95.6 %. 0: not shaped, unlimited.
double GoodputBytesPerSecond(uint64_t bits_per_second);

// An encoded tensor with the headers of the chunks that it travels in.
uint64_t WithChunkHeaders(uint64_t bytes);

// As many interfaces as the plan has stages. Depths, codecs' times and the order of gradients are
// the plan's, schedule and microbatches the run's.
schedule::PipelineCost PipelineCostOf(const v1::Plan& plan, const RunSpec& spec,
                                      const Network& network);

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_PLANNER_PIPELINE_COST_H_
