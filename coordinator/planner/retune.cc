#include "coordinator/planner/retune.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "base/units.h"
#include "coordinator/planner/order.h"
#include "coordinator/planner/pipeline_cost.h"
#include "coordinator/planner/planner.h"
#include "coordinator/planner/prediction.h"
#include "run/schedule/simulator.h"
#include "run/schedule/tune.h"

namespace longhaul::coordinator {
namespace {

constexpr double kDifference = 0.2, kLeastGain = 0.05;
// Of a step's time in one stage, and of a rate: above these a report is wrong.
constexpr double kLongestSeconds = 24 * 3600, kMostBitsPerSecond = 1e13;
// Less says nothing of a rate: what one socket's buffer holds arrives at once.
constexpr uint64_t kLeastBytes = uint64_t{256} << 10;
// Microbatches times stages squared, as the simulator's time is. So many take up to a second,
// in which the coordinator does nothing else.
constexpr uint64_t kMostWork = 40'000;

double Sane(double seconds) {
  return seconds > 0 && seconds <= kLongestSeconds ? seconds : 0;
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// By `of(step)`, which gives a value or nullopt.
template <typename Of>
std::optional<double> MedianOfKnown(std::span<const Seen> steps, Of of) {
  std::vector<double> values;
  for (const Seen& step : steps) {
    if (const std::optional<double> value = of(step)) values.push_back(*value);
  }
  if (values.empty()) return std::nullopt;
  return Median(std::move(values));
}

bool AreApart(double a, double b) {
  return std::abs(a - b) > kDifference * std::max(a, b);
}

bool AreApart(const std::optional<double>& a, const std::optional<double>& b) {
  return a && b && AreApart(*a, *b);
}

bool RoundTripsAreApart(const std::optional<double>& a, const std::optional<double>& b) {
  return AreApart(a, b) &&
         std::abs(*a - *b) > 2 * absl::ToDoubleSeconds(schedule::kUnforeseenDelay);
}

std::optional<double> RateOf(const v1::StepReport& report, bool from_above) {
  for (const v1::LinkUse& link : report.links()) {
    if (link.up() != from_above || link.received_bytes() < kLeastBytes) continue;
    const double seconds = Sane(link.receive_seconds());
    if (seconds == 0) continue;
    const double bits = static_cast<double>(link.received_bytes()) * 8 / seconds;
    if (bits <= kMostBitsPerSecond) return bits;
  }
  return std::nullopt;
}

// How much faster than the simulator has it tensors arrive, in one direction of one boundary.
struct Ratio {
  std::optional<double> forward, backward;
};

std::vector<Ratio> RatiosTo(const schedule::PipelineCost& cost,
                            const schedule::Simulation& simulation, const Seen& seen) {
  const double step = absl::ToDoubleSeconds(simulation.step);
  const auto ratio = [&](const std::optional<double>& bits, double bytes,
                         double busy_share) -> std::optional<double> {
    if (!bits || !(busy_share > 0)) return std::nullopt;
    return *bits / 8 / (bytes * cost.microbatches / (busy_share * step));
  };
  std::vector<Ratio> ratios;
  for (size_t b = 0; b < cost.boundaries.size(); ++b) {
    const schedule::BoundaryUse& use = simulation.boundaries[b];
    ratios.push_back({ratio(seen.links[b].forward_bits_per_second, cost.boundaries[b].forward_bytes,
                            use.forward.busy_share),
                      ratio(seen.links[b].backward_bits_per_second,
                            cost.boundaries[b].backward_bytes, use.backward.busy_share)});
  }
  return ratios;
}

// What makes a difference.
std::optional<double> Factor(std::optional<double> a, std::optional<double> b) {
  const double most = std::max(a.value_or(0), b.value_or(0));
  if (most == 0 || !AreApart(most, 1)) return std::nullopt;
  return most;
}

// An interface is as much faster or slower as the better one of its links: the other one may be
// held back by its other end.
void ScaleInterfaces(const std::vector<Ratio>& ratios, NetworkRates* network) {
  for (size_t s = 0; s < network->interfaces.size(); ++s) {
    const Ratio above = s > 0 ? ratios[s - 1] : Ratio{};
    const Ratio below = s < ratios.size() ? ratios[s] : Ratio{};
    InterfaceRates& rates = network->interfaces[s];
    rates.egress_bytes_per_second *= Factor(below.forward, above.backward).value_or(1);
    rates.ingress_bytes_per_second *= Factor(above.forward, below.backward).value_or(1);
  }
}

// What that does not explain is the pair's.
void ScalePairs(const std::vector<Ratio>& ratios, const Seen& seen, NetworkRates* network) {
  const auto scale = [](const std::optional<double>& ratio, const std::optional<double>& bits,
                        double* rate) {
    if (!ratio || !AreApart(*ratio, 1)) return;
    if (*rate != schedule::kUnlimited) {
      *rate *= *ratio;
    } else if (*ratio < 1) {
      *rate = *bits / 8;
    }
  };
  for (size_t b = 0; b < ratios.size(); ++b) {
    scale(ratios[b].forward, seen.links[b].forward_bits_per_second,
          &network->links[b].forward_bytes_per_second);
    scale(ratios[b].backward, seen.links[b].backward_bits_per_second,
          &network->links[b].backward_bytes_per_second);
  }
}

StatusOr<NetworkRates> NetworkAsSeen(const RunSpec& spec, const v1::Plan& plan, const Seen& seen) {
  NetworkRates network = NetworkOf(plan);
  for (size_t b = 0; b < network.links.size(); ++b) {
    LinkRates& link = network.links[b];
    const auto known = absl::ToDoubleSeconds(link.forward_latency + link.backward_latency);
    const std::optional<double>& trip = seen.links[b].round_trip_seconds;
    if (trip && RoundTripsAreApart(trip, known)) {
      link.forward_latency = link.backward_latency = absl::Seconds(*trip / 2);
    }
  }
  const auto ratios = [&]() -> StatusOr<std::vector<Ratio>> {
    const schedule::PipelineCost cost = PipelineCostOf(plan, spec, network);
    LH_ASSIGN_OR_RETURN(const schedule::Simulation simulation, schedule::Simulate(cost));
    return RatiosTo(cost, simulation, seen);
  };
  LH_ASSIGN_OR_RETURN(const std::vector<Ratio> as_planned, ratios());
  ScaleInterfaces(as_planned, &network);
  LH_ASSIGN_OR_RETURN(const std::vector<Ratio> unexplained, ratios());
  ScalePairs(unexplained, seen, &network);
  return network;
}

// The goodput that one direction has to itself.
double AloneBitsPerSecond(const NetworkRates& network, size_t boundary, bool forward) {
  const InterfaceRates &upper = network.interfaces[boundary],
                       &lower = network.interfaces[boundary + 1];
  const LinkRates& link = network.links[boundary];
  return 8 * (forward ? std::min({upper.egress_bytes_per_second, lower.ingress_bytes_per_second,
                                  link.forward_bytes_per_second})
                      : std::min({lower.egress_bytes_per_second, upper.ingress_bytes_per_second,
                                  link.backward_bytes_per_second}));
}

// The difference that is largest, of `before` and `after`.
std::string WhatChanged(const v1::Plan& before, const v1::Plan& after) {
  double largest = 0;
  std::string text;
  const auto consider = [&](double was, double is, auto sentence) {
    if (!(was > 0) || !(is > 0)) return;
    const double by = std::abs(std::log(is / was));
    if (by <= largest) return;
    largest = by;
    text = sentence();
  };
  for (int s = 0; s < before.stages_size(); ++s) {
    const v1::StagePlan &was = before.stages(s), &is = after.stages(s);
    const double old_time = was.forward_seconds() + was.backward_seconds();
    const double new_time = is.forward_seconds() + is.backward_seconds();
    consider(old_time, new_time, [&] {
      return fmt::format("a microbatch takes {} {} where {} were planned", was.worker_name(),
                         longhaul::FormatDuration(absl::Seconds(new_time)),
                         longhaul::FormatDuration(absl::Seconds(old_time)));
    });
  }
  const NetworkRates old_network = NetworkOf(before), new_network = NetworkOf(after);
  for (size_t b = 0; b < old_network.links.size(); ++b) {
    const auto b_of = [&](int offset) -> const std::string& {
      return before.stages(static_cast<int>(b) + offset).worker_name();
    };
    for (const bool forward : {true, false}) {
      const double was = AloneBitsPerSecond(old_network, b, forward);
      const double is = AloneBitsPerSecond(new_network, b, forward);
      consider(was, is, [&] {
        return fmt::format("{} gets {} to {} where {} were planned", b_of(forward ? 0 : 1),
                           FormatBitsPerSecond(is), b_of(forward ? 1 : 0),
                           FormatBitsPerSecond(was));
      });
    }
    const auto trip = [](const LinkRates& link) {
      return absl::ToDoubleSeconds(link.forward_latency + link.backward_latency);
    };
    const double was = trip(old_network.links[b]), is = trip(new_network.links[b]);
    // From nothing to something is a change that has no ratio.
    consider(std::max(was, 0.001), std::max(is, 0.001), [&] {
      return fmt::format("a round trip between {} and {} takes {} where {} were planned", b_of(0),
                         b_of(1), longhaul::FormatDuration(absl::Seconds(is)),
                         longhaul::FormatDuration(absl::Seconds(was)));
    });
  }
  return text;
}

std::string DepthsOf(const v1::Plan& plan) {
  std::string text;
  for (const v1::StagePlan& stage : plan.stages()) {
    text += fmt::format("{}{}", text.empty() ? "" : ", ", stage.depth());
  }
  return text;
}

void SetTimes(const Seen& seen, v1::Plan* plan) {
  for (int s = 0; s < plan->stages_size(); ++s) {
    const SeenStage& one = seen.stages[static_cast<size_t>(s)];
    v1::StagePlan& stage = *plan->mutable_stages(s);
    stage.set_forward_seconds(one.forward_seconds);
    stage.set_backward_seconds(one.backward_seconds);
    stage.set_optimizer_seconds(one.optimizer_seconds);
  }
}

}  // namespace

Seen SeenIn(const RunSpec& spec, std::span<const std::optional<v1::StepReport>> reports) {
  Seen seen;
  for (size_t s = 0; s < reports.size(); ++s) {
    const v1::StepReport& report = *reports[s];
    seen.stages.push_back({Sane(report.forward_seconds()) / spec.train.microbatches,
                           Sane(report.backward_seconds()) / spec.train.microbatches,
                           Sane(report.optimizer_seconds())});
    if (s == 0) continue;
    const v1::StepReport& above = *reports[s - 1];
    SeenLink link{RateOf(report, true), RateOf(above, false), std::nullopt};
    const double wait = Sane(report.norm_wait_seconds());
    if (wait > 0) {
      link.round_trip_seconds =
          std::max(wait - Sane(above.norm_wait_seconds()) - Sane(above.norm_turn_seconds()), 0.0);
    }
    seen.links.push_back(link);
  }
  return seen;
}

Seen MedianOf(std::span<const Seen> steps) {
  Seen median;
  for (size_t s = 0; s < steps.front().stages.size(); ++s) {
    const auto of = [&](double SeenStage::*value) {
      return *MedianOfKnown(
          steps, [&](const Seen& step) -> std::optional<double> { return step.stages[s].*value; });
    };
    median.stages.push_back({of(&SeenStage::forward_seconds), of(&SeenStage::backward_seconds),
                             of(&SeenStage::optimizer_seconds)});
  }
  for (size_t b = 0; b < steps.front().links.size(); ++b) {
    const auto of = [&](std::optional<double> SeenLink::*value) {
      return MedianOfKnown(steps, [&](const Seen& step) { return step.links[b].*value; });
    };
    median.links.push_back({of(&SeenLink::forward_bits_per_second),
                            of(&SeenLink::backward_bits_per_second),
                            of(&SeenLink::round_trip_seconds)});
  }
  return median;
}

bool Differs(const Seen& some, const Seen& others) {
  for (size_t s = 0; s < some.stages.size(); ++s) {
    const SeenStage &a = some.stages[s], &b = others.stages[s];
    if (AreApart(a.forward_seconds + a.backward_seconds, b.forward_seconds + b.backward_seconds)) {
      return true;
    }
  }
  for (size_t i = 0; i < some.links.size(); ++i) {
    const SeenLink &a = some.links[i], &b = others.links[i];
    if (AreApart(a.forward_bits_per_second, b.forward_bits_per_second) ||
        AreApart(a.backward_bits_per_second, b.backward_bits_per_second) ||
        RoundTripsAreApart(a.round_trip_seconds, b.round_trip_seconds)) {
      return true;
    }
  }
  return false;
}

bool MayRetune(const RunSpec& spec, const v1::Plan& plan) {
  const auto stages = static_cast<uint64_t>(plan.stages_size());
  return stages > 1 && stages * stages * spec.train.microbatches <= kMostWork &&
         spec.pipeline.schedule == ScheduleKind::kLinkAware && !spec.pipeline.depth &&
         RatesAreKnown(plan);
}

uint32_t MostDepth(const RunSpec& spec, const v1::StagePlan& stage) {
  return stage.depth_by_memory() > 0 ? stage.depth_by_memory() : spec.train.microbatches;
}

StatusOr<std::optional<v1::Plan>> Retune(const RunSpec& spec, const v1::Plan& plan,
                                         const Seen& seen) {
  v1::Plan now = plan;
  SetTimes(seen, &now);
  LH_ASSIGN_OR_RETURN(const NetworkRates network, NetworkAsSeen(spec, now, seen));
  SetNetwork(network, &now);
  LH_ASSIGN_OR_RETURN(const schedule::Simulation as_it_is,
                      schedule::Simulate(PipelineCostOf(now, spec, network)));
  v1::Plan better = now;
  for (v1::StagePlan& stage : *better.mutable_stages()) stage.set_depth(MostDepth(spec, stage));
  LH_RETURN_IF_ERROR(ChooseOrder(spec, &better));
  LH_RETURN_IF_ERROR(AddPrediction(spec, &better));
  const double before = absl::ToDoubleSeconds(as_it_is.step);
  const double after = better.prediction().step_seconds();
  if (after >= before * (1 - kLeastGain)) return std::nullopt;
  for (int s = 0; s < better.stages_size(); ++s) {
    v1::StagePlan& stage = *better.mutable_stages(s);
    const uint64_t per_flight = stage.memory_per_flight_bytes();
    stage.set_memory_bytes(stage.memory_bytes() + per_flight * stage.depth() -
                           per_flight * plan.stages(s).depth());
  }
  better.set_retunes(plan.retunes() + 1);
  better.set_retune_reason(fmt::format(
      "{}; depths go from {} to {}, {}; a step is predicted to take {} instead of {}",
      WhatChanged(plan, better), DepthsOf(plan), DepthsOf(better),
      better.prediction().order_reason(), longhaul::FormatDuration(absl::Seconds(after)),
      longhaul::FormatDuration(absl::Seconds(before))));
  return better;
}

}  // namespace longhaul::coordinator
