#include "planner/order.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "planner/pipeline_cost.h"
#include "run/schedule/tune.h"

namespace longhaul::coordinator {
namespace {

bool AllAtOnce(const RunSpec& spec, const Plan& plan) {
  return TraitsOf(spec.pipeline.schedule).may_hold_whole_step() &&
         std::all_of(
             plan.assignment.cells.begin(), plan.assignment.cells.end(),
             [&](const Cell& cell) { return cell.setting.depth >= spec.train.microbatches; });
}

// The lead where it needs no search; nullopt: search. Where rates are not known, interfaces count
// as alike, and activations go first where depth allows it. The worst case of that is a first stage
// with a slow link.
StatusOr<std::optional<uint32_t>> FixedLead(const RunSpec& spec, const Plan& plan) {
  const uint32_t all = spec.train.microbatches;
  if (spec.pipeline.send_order == SendOrder::kActivationsFirst) {
    if (AllAtOnce(spec, plan)) return all - 1;
    return FailedPrecondition(
        "pipeline.send_order: activations-first needs all {} microbatches in flight in every "
        "stage, and a worker's memory does not hold them; take send_order: auto, fewer "
        "microbatches or pipeline.recompute",
        all);
  }
  if (spec.pipeline.send_order == SendOrder::kAsReady ||
      !TraitsOf(spec.pipeline.schedule).orders_data) {
    return 0;
  }
  if (RatesAreKnown(plan)) return std::nullopt;
  return AllAtOnce(spec, plan) ? all - 1 : 0;
}

std::string DepthReason(const RunSpec& spec, const Plan& plan, uint32_t most, uint32_t chosen,
                        bool has_tried_fewer) {
  const uint32_t all = spec.train.microbatches;
  const ScheduleTraits& schedule = TraitsOf(spec.pipeline.schedule);
  if (!schedule.searches_depth()) {
    return fmt::format("{}: {}", schedule.name, schedule.depth_words);
  }
  if (spec.pipeline.depth) return "pipeline.depth of the run file";
  if (spec.pipeline.send_order == SendOrder::kActivationsFirst) {
    return "all of a step, which activations-first needs";
  }
  const std::string margin =
      fmt::format("where messages are {} longer under way than is known, or links a third faster",
                  longhaul::FormatDuration(schedule::kUnforeseenDelay));
  if (chosen < most) return "fewer would make a step more than 1% longer " + margin;
  if (!has_tried_fewer) return "all that memory holds: there was no time to try fewer";
  if (most < all) return "memory holds no more";
  if (!RatesAreKnown(plan)) return "all of a step, because the links' rates are not known";
  return "all of a step: fewer would make it more than 1% longer " + margin;
}

std::string OrderReason(const RunSpec& spec, const Plan& plan, bool searched,
                        const schedule::Tuning& tuning) {
  const uint32_t lead = *std::max_element(tuning.leads.begin(), tuning.leads.end());
  std::string text = lead == 0
                         ? "activations and gradients leave as they are ready"
                         : fmt::format("activations go {} of {} microbatches ahead of gradients",
                                       lead, spec.train.microbatches);
  if (spec.pipeline.send_order != SendOrder::kAuto) {
    return text + fmt::format(" (pipeline.send_order: {})", ToString(spec.pipeline.send_order));
  }
  if (!searched) {
    return text + (RatesAreKnown(plan) ? "" : ", because the links' rates are not known");
  }
  const double gain = absl::FDivDuration(tuning.as_ready, tuning.step) - 1;
  if (lead == 0) return text + ", which no lead of activations makes faster";
  if (gain < 0.001) return text + ", which costs nothing and spares links that share badly";
  return text + fmt::format("; sending both as they are ready would make a step {:.1f}% longer",
                            100 * gain);
}

}  // namespace

bool RatesAreKnown(const Plan& plan) {
  const NetworkRates network = NetworkOf(plan);
  for (size_t e = 0; e < plan.assignment.edges.size(); ++e) {
    if (plan.assignment.edges[e].kind == EdgeKind::kReplicas) continue;
    for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
      if (AloneBytesPerSecond(network, plan.assignment, e, direction) == schedule::kUnlimited) {
        return false;
      }
    }
  }
  return true;
}

namespace {

// Steps of the plan on its network, and with both margins.
StatusOr<std::vector<absl::Duration>> StepsOf(const RunSpec& spec, const Plan& plan,
                                              const std::stop_token& stop) {
  const schedule::PipelineCost cost = PipelineCostOf(plan, spec, NetworkOf(plan));
  const schedule::Unforeseen unforeseen = schedule::UnforeseenOf(cost);
  std::vector<absl::Duration> steps;
  for (const schedule::PipelineCost* one : {&cost, &unforeseen.late, &unforeseen.late_and_fast}) {
    LH_ASSIGN_OR_RETURN(const schedule::Simulation simulation, schedule::Simulate(*one, stop));
    steps.push_back(simulation.step);
  }
  return steps;
}

}  // namespace

Status ChooseOrderLike(const RunSpec& spec, const Plan& slower, Plan* plan,
                       const std::stop_token& stop, const schedule::SearchLimit& limit) {
  const bool searched = TraitsOf(spec.pipeline.schedule).searches_depth() && !spec.pipeline.depth &&
                        spec.pipeline.send_order == SendOrder::kAuto && RatesAreKnown(*plan) &&
                        RatesAreKnown(slower);
  if (!searched) return ChooseOrder(spec, plan, stop, Effort::kWhole, limit);
  Plan like = *plan, deep = *plan;           // the latter with all depth that there is
  uint32_t least = spec.train.microbatches;  // of the depths above
  for (size_t s = 0; s < like.assignment.cells.size(); ++s) {
    Setting& setting = like.assignment.cells[s].setting;
    const Setting& theirs = slower.assignment.cells[s].setting;
    like.cells[s].depth_reason =
        setting.depth < theirs.depth ? "memory holds no more" : "as in the slowest replica";
    setting.depth = std::min(setting.depth, theirs.depth);
    setting.activation_lead = s == 0 ? 0 : std::min(theirs.activation_lead, least);
    deep.assignment.cells[s].setting.activation_lead = setting.activation_lead;
    least = std::min(least, setting.depth);
  }
  LH_ASSIGN_OR_RETURN(const std::vector<absl::Duration> steps, StepsOf(spec, like, stop));
  LH_ASSIGN_OR_RETURN(const std::vector<absl::Duration> limits, StepsOf(spec, slower, stop));
  LH_ASSIGN_OR_RETURN(const std::vector<absl::Duration> deepest, StepsOf(spec, deep, stop));
  for (size_t i = 0; i < steps.size(); ++i) {
    const bool is_good =
        steps[i] <= std::max(limits[i], deepest[i] * (1 + schedule::kDepthTolerance));
    if (!is_good) return ChooseOrder(spec, plan, stop, Effort::kWhole, limit);
  }
  like.prediction.unlimited_depth_step_seconds =
      absl::ToDoubleSeconds(std::min(deepest.front(), steps.front()));
  like.prediction.cut_short = slower.prediction.cut_short;
  like.prediction.order_reason = "data leave as in the slowest replica";
  *plan = std::move(like);
  return absl::OkStatus();
}

Status ChooseOrder(const RunSpec& spec, Plan* plan, const std::stop_token& stop, Effort effort,
                   const schedule::SearchLimit& limit) {
  LH_ASSIGN_OR_RETURN(const std::optional<uint32_t> lead, FixedLead(spec, *plan));
  const PipelineSpec& pipeline = spec.pipeline;
  const bool may_search = TraitsOf(pipeline.schedule).searches_depth() && !pipeline.depth;
  const bool is_wanted = effort == Effort::kWhole && !(may_search && limit.IsOver());
  const bool deep_as_needed = may_search && is_wanted;
  schedule::PipelineCost cost = PipelineCostOf(*plan, spec, NetworkOf(*plan));
  const bool searched =
      deep_as_needed && RatesAreKnown(*plan) && pipeline.send_order != SendOrder::kActivationsFirst;
  const schedule::TuneOptions options{
      .depths = searched, .lead = lead, .limit = limit, .stop = stop};
  LH_ASSIGN_OR_RETURN(schedule::Tuning tuning, searched ? schedule::TuneWithMargin(cost, options)
                                                        : schedule::Tune(cost, options));
  if (deep_as_needed) {
    // The tuning tried no depths above those that it chose, so unlimited depths are simulated here.
    for (size_t s = 0; s < cost.stages.size(); ++s) {
      cost.stages[s].depth = spec.train.microbatches;
      cost.stages[s].activation_lead = tuning.leads[s];
    }
    LH_ASSIGN_OR_RETURN(const schedule::Simulation unlimited, schedule::Simulate(cost, stop));
    tuning.unlimited = std::min(tuning.unlimited, unlimited.step);
  }
  for (size_t s = 0; s < plan->assignment.cells.size(); ++s) {
    Setting& setting = plan->assignment.cells[s].setting;
    plan->cells[s].depth_reason =
        DepthReason(spec, *plan, setting.depth, tuning.depths[s], is_wanted);
    setting.depth = tuning.depths[s];
    setting.activation_lead = tuning.leads[s];
  }
  Prediction& prediction = plan->prediction;
  prediction.unlimited_depth_step_seconds = absl::ToDoubleSeconds(tuning.unlimited);
  prediction.cut_short = tuning.cut_short;
  if (!plan->assignment.edges.empty()) {
    prediction.order_reason = OrderReason(spec, *plan, !lead, tuning);
  }
  return absl::OkStatus();
}

}  // namespace longhaul::coordinator
