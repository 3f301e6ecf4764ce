#include "deploy/sweep/prediction.h"

#include <algorithm>
#include <vector>

#include "codec/codec.h"
#include "planner/pipeline_cost.h"
#include "planner/replicas.h"
#include "run/boundary/boundary_shape.h"
#include "run/schedule/simulator.h"

namespace longhaul::cli {

StatusOr<PointPrediction> PredictPoint(const Plan& plan, const RunSpec& spec,
                                       uint64_t rate_bits_per_second, absl::Duration delay) {
  const auto network = coordinator::UniformNetwork(
      plan.assignment, coordinator::GoodputBytesPerSecond(rate_bits_per_second), delay);
  if (coordinator::ReplicasOf(plan.assignment) > 1) {
    Plan there = plan;
    coordinator::SetNetwork(network, &there);
    LH_ASSIGN_OR_RETURN(const coordinator::ReplicasStep step,
                        coordinator::PredictReplicas(there, spec));
    return PointPrediction{.simulated_seconds = step.step_seconds,
                           .bound_seconds = step.lower_bound_seconds,
                           .floor_seconds = step.floor_seconds,
                           .bottleneck = step.bottleneck};
  }
  LH_ASSIGN_OR_RETURN(const schedule::Simulation simulation,
                      schedule::Simulate(coordinator::PipelineCostOf(plan, spec, network)));
  return PointPrediction{.simulated_seconds = absl::ToDoubleSeconds(simulation.step),
                         .bound_seconds = absl::ToDoubleSeconds(simulation.lower_bound),
                         .floor_seconds = absl::ToDoubleSeconds(simulation.busiest.step),
                         .bottleneck = simulation.bottleneck};
}

double NetworkSeconds(const RunSpec& spec, uint64_t rate_bits_per_second) {
  if (rate_bits_per_second == 0 || spec.pipeline.stages == 1) return 0;
  const uint32_t slices = spec.pipeline.SlicesNow();
  std::vector<uint64_t> bytes;
  for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
    const codec::Shape shape = SliceShape(spec, direction);
    const CodecPair& codecs = spec.links.codecs;
    const auto& codec = (direction == Direction::kForward ? codecs.forward : codecs.backward).Get();
    bytes.push_back(codec.ok() ? coordinator::WithChunkHeaders((*codec)->MaxEncodedBytes(shape))
                               : 0);
  }
  // A worker in the middle sends activations down and gradients up.
  const uint64_t sent =
      spec.pipeline.stages == 2 ? std::max(bytes[0], bytes[1]) : bytes[0] + bytes[1];
  return static_cast<double>(sent) * spec.train.microbatches * slices /
         coordinator::GoodputBytesPerSecond(rate_bits_per_second);
}

}  // namespace longhaul::cli
