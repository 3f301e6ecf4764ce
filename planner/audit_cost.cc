#include "planner/audit_cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/units.h"

namespace longhaul::coordinator {
namespace {

// From here on the plan says how a stage holds less in memory.
constexpr uint64_t kMuchRecorded = uint64_t{1} << 30;

// Steps between states that are saved anyway: copies for recovery, and checkpoints.
uint64_t WindowSteps(const RunSpec& spec, const Plan& plan) {
  const uint64_t copies = plan.assignment.copy_every, checkpoints = spec.checkpoint.every;
  const uint64_t all = spec.train.steps;
  return std::min({copies > 0 ? copies : all, checkpoints > 0 ? checkpoints : all, all});
}

}  // namespace

AuditCost AuditCostOf(const RunSpec& spec, const Plan& plan) {
  const double share = spec.audit.share;
  if (share <= 0) return {};
  AuditCost cost{.window_steps = WindowSteps(spec, plan)};
  // Each window is drawn by itself, and a drawn one is compared to the last bit.
  const double windows = share < 1 ? std::ceil(std::log(1 - kNamedWith) / std::log(1 - share)) : 1;
  cost.named_steps = static_cast<uint64_t>(windows) * cost.window_steps;
  double compute = 0;
  for (const PredictedCell& cell : plan.prediction.cells) {
    compute += cell.compute_seconds + cell.optimizer_seconds;
  }
  if (plan.prediction.step_seconds > 0) {
    cost.spare_share = share * compute / plan.prediction.step_seconds;
  }
  cost.traffic_share = share;  // a drawn stage sends on what it has received
  for (const Cell& cell : plan.assignment.cells) {
    uint64_t received = 0;
    for (const Edge& edge : plan.assignment.edges) {
      if (edge.from == cell.id || edge.to == cell.id) received += edge.SentTo(cell.id).bytes;
    }
    cost.recorded_bytes =
        std::max(cost.recorded_bytes, received * spec.train.microbatches * cost.window_steps);
  }
  return cost;
}

std::string AuditText(const RunSpec& spec, const Plan& plan) {
  if (spec.audit.share <= 0) return "";
  const AuditCost cost = AuditCostOf(spec, plan);
  std::string text = fmt::format(
      " Audits compute {:.3g}% of all work again (audit.share), in windows of {} {}, from one "
      "saved "
      "state to the next: a worker that lies in every step is named within {} steps with a "
      "probability of {:.0f}%, and a lie in one step with {:.3g}%. They take {:.2g}% of one "
      "spare's time and add {:.3g}% to what stages send; each stage holds up to {} of received "
      "messages in its host's memory.",
      100 * spec.audit.share, cost.window_steps, cost.window_steps == 1 ? "step" : "steps",
      cost.named_steps, 100 * kNamedWith, 100 * spec.audit.share, 100 * cost.spare_share,
      100 * cost.traffic_share, FormatBytes(cost.recorded_bytes));
  if (cost.spare_share > static_cast<double>(spec.recovery.spares)) {
    text += fmt::format(
        " The {} {} cannot compute all of them, and some are left out: raise recovery.spares or "
        "lower audit.share.",
        spec.recovery.spares, spec.recovery.spares == 1 ? "spare" : "spares");
  }
  if (cost.recorded_bytes > kMuchRecorded) {
    text += " With a smaller recovery.every they hold less.";
  }
  const bool on_gpu = std::ranges::any_of(
      plan.cells, [](const CellEstimate& cell) { return cell.device_kind == "cuda"; });
  if (on_gpu && !spec.train.deterministic) {
    text +=
        " Stages on GPUs cannot be audited: without train.deterministic: true they compute sums in "
        "any order.";
  }
  return text;
}

}  // namespace longhaul::coordinator
