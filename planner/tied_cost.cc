#include "planner/tied_cost.h"

#include <algorithm>

#include "base/units.h"
#include "planner/pipeline_cost.h"

namespace longhaul::coordinator {

double TiedSeconds(const Plan& plan) {
  const auto tied = std::ranges::find(plan.assignment.edges, EdgeKind::kTied, &Edge::kind);
  if (tied == plan.assignment.edges.end()) return 0;
  const NetworkRates network = NetworkOf(plan);
  const auto place = static_cast<size_t>(tied - plan.assignment.edges.begin());
  const auto seconds = [&](const Flow& flow, Direction direction) {
    return static_cast<double>(WithChunkHeaders(flow.bytes)) /
           AloneBytesPerSecond(network, plan.assignment, place, direction);
  };
  return std::max(seconds(tied->forward, Direction::kForward),
                  seconds(tied->backward, Direction::kBackward));
}

Status CheckTiedCost(const PlanRequest& request, const Plan& plan) {
  const bool trains = request.spec.train.steps > 0;
  if (request.resume || !trains || !request.spec.weights.tied_unsaid) return absl::OkStatus();
  const double seconds = TiedSeconds(plan), step = plan.prediction.step_seconds;
  if (!(seconds > kMostTiedShare * step)) return absl::OkStatus();
  return FailedPrecondition(
      "embedding and head of {} are one matrix, which the first and the last stage would send each "
      "other in every step: {} of a step of {} ({:.0f}%). Say which you want: `model: {{ tied: "
      "split }}` trains the two apart and sends nothing, `tied: true` keeps one matrix; LoRA "
      "(train.lora) sends nothing either",
      request.spec.weights.from, FormatSeconds(seconds), FormatSeconds(step), 100 * seconds / step);
}

}  // namespace longhaul::coordinator
