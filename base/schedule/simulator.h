// Predicts the time of one synchronous step by driving the executor's own policies with a virtual
// clock; and the lower bound that no schedule beats.
//
// Model: stage s computes one thing at a time; a message from s to s + 1 (or back) occupies
// the egress of the sender and the ingress of the receiver, which all transfers through that
// interface share max-min fairly; messages of one link direction go in order, several links of one
// sender at once; a message arrives `latency` after its last byte left. Codecs run beside compute
// on their own thread, one message at a time per stage. Pure and deterministic; O(S * M * S)
// events.
#ifndef LONGHAUL_BASE_SCHEDULE_SIMULATOR_H_
#define LONGHAUL_BASE_SCHEDULE_SIMULATOR_H_

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/time/time.h"
#include "base/config/run_spec.h"
#include "base/schedule/policy.h"
#include "base/status.h"

namespace longhaul::schedule {

inline constexpr double kUnlimited = std::numeric_limits<double>::infinity();

struct StageCost {
  absl::Duration forward, backward;             // one microbatch
  absl::Duration optimizer;                     // once a step, after the last backward
  double egress_bytes_per_second = kUnlimited;  // goodput of its interface
  double ingress_bytes_per_second = kUnlimited;
  uint32_t depth = 1;
};

// Between stage b and b + 1.
struct BoundaryCost {
  double forward_bytes = 0, backward_bytes = 0;  // one microbatch, headers included
  // What this ordered pair of workers gets at most, beside the interfaces' rates.
  double forward_bytes_per_second = kUnlimited, backward_bytes_per_second = kUnlimited;
  absl::Duration forward_latency, backward_latency;  // one way
  absl::Duration forward_encode, forward_decode, backward_encode, backward_decode;
};

struct PipelineCost {
  ScheduleKind schedule = ScheduleKind::kLinkAware;
  SendOrder order = SendOrder::kAsReady;
  uint32_t microbatches = 1;
  std::vector<StageCost> stages;         // S >= 1
  std::vector<BoundaryCost> boundaries;  // S - 1
};

struct StageUse {
  double compute_share = 0;  // of the step time
  double egress_share = 0, ingress_share = 0;
};

struct Simulation {
  absl::Duration step;         // until the last optimizer has stepped
  absl::Duration lower_bound;  // pipeline.md's bound over all resources, optimizer included
  // The resource that gives the bound: "compute of stage 1", "egress of stage 2", ...
  std::string bottleneck;
  std::vector<StageUse> stages;
};

// kInvalidArgument for an instance that makes no sense (no stages, negative times, sizes differ).
StatusOr<Simulation> Simulate(const PipelineCost& cost);

}  // namespace longhaul::schedule

#endif  // LONGHAUL_BASE_SCHEDULE_SIMULATOR_H_
