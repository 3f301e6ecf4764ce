#include "planner/retune.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "base/units.h"
#include "planner/order.h"
#include "planner/pipeline_cost.h"
#include "planner/planner.h"
#include "planner/prediction.h"
#include "planner/replicas.h"
#include "run/schedule/simulator.h"
#include "run/schedule/tune.h"

namespace longhaul::coordinator {
namespace {

constexpr double kDifference = 0.2, kLeastGain = 0.05;
// A reported time of a stage in a step, or a rate, that is above these is wrong.
constexpr double kLongestSeconds = 24 * 3600, kMostBitsPerSecond = 1e13;
// Fewer bytes say nothing of a rate: the contents of a socket's buffer arrive at once.
constexpr uint64_t kLeastBytes = uint64_t{256} << 10;

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

// The rate of the bytes that came in over an edge; nullopt: too few came.
std::optional<double> RateOf(const v1::StepReport& report, EdgeId edge) {
  for (const v1::LinkUse& link : report.links()) {
    if (link.edge() != edge.value() || link.received_bytes() < kLeastBytes) continue;
    const double seconds = Sane(link.receive_seconds());
    if (seconds == 0) continue;
    const double bits = static_cast<double>(link.received_bytes()) * 8 / seconds;
    if (bits <= kMostBitsPerSecond) return bits;
  }
  return std::nullopt;
}

// How much faster than the simulator has it tensors arrive, in each direction of an edge.
struct Ratio {
  std::optional<double> forward, backward;
};

std::vector<Ratio> RatiosTo(const schedule::PipelineCost& cost,
                            const schedule::Simulation& simulation, const Seen& seen) {
  const double step = absl::ToDoubleSeconds(simulation.step);
  const auto ratio = [&](const std::optional<double>& bits, const schedule::FlowCost& flow,
                         const schedule::DirectionUse& use) -> std::optional<double> {
    if (!bits || !(use.busy_share > 0)) return std::nullopt;
    return *bits / 8 / (flow.bytes * cost.AllSlices() / (use.busy_share * step));
  };
  std::vector<Ratio> ratios;
  for (size_t b = 0; b < cost.boundaries.size(); ++b) {
    const schedule::BoundaryUse& use = simulation.boundaries[b];
    const SeenEdge& edge = seen.edges[b];
    ratios.push_back(
        {ratio(edge.forward_bits_per_second, cost.boundaries[b].forward, use.forward),
         ratio(edge.backward_bits_per_second, cost.boundaries[b].backward, use.backward)});
  }
  if (cost.tied) ratios.push_back({});  // once a step: no rate of a step's tensors
  return ratios;
}

// An interface is as much faster or slower as the better one of its edges: the other one may be
// held back by its other end.
void ScaleInterfaces(const Assignment& assignment, const std::vector<Ratio>& ratios,
                     NetworkRates* network) {
  struct Best {
    double sent = 0, received = 0;  // 0: not known
  };
  std::vector<Best> best(assignment.cells.size());
  const auto consider = [](const std::optional<double>& ratio, double* most) {
    *most = std::max(*most, ratio.value_or(0));
  };
  for (size_t e = 0; e < ratios.size(); ++e) {
    Best& from = best[assignment.PlaceOf(assignment.edges[e].from)];
    Best& to = best[assignment.PlaceOf(assignment.edges[e].to)];
    consider(ratios[e].forward, &from.sent);
    consider(ratios[e].forward, &to.received);
    consider(ratios[e].backward, &to.sent);
    consider(ratios[e].backward, &from.received);
  }
  const auto scale = [](double ratio, double* rate) {
    if (ratio > 0 && AreApart(ratio, 1)) *rate *= ratio;
  };
  for (size_t c = 0; c < best.size(); ++c) {
    scale(best[c].sent, &network->interfaces[c].egress_bytes_per_second);
    scale(best[c].received, &network->interfaces[c].ingress_bytes_per_second);
  }
}

// What that does not explain is the pair's.
void ScalePairs(const std::vector<Ratio>& ratios, const Seen& seen, NetworkRates* network) {
  const auto scale = [](const std::optional<double>& ratio, const std::optional<double>& bits,
                        FlowRates* rates) {
    if (!ratio || !AreApart(*ratio, 1)) return;
    if (rates->bytes_per_second != schedule::kUnlimited) {
      rates->bytes_per_second *= *ratio;
    } else if (*ratio < 1) {
      rates->bytes_per_second = *bits / 8;
    }
  };
  for (size_t e = 0; e < ratios.size(); ++e) {
    LinkRates& link = network->links[e];
    scale(ratios[e].forward, seen.edges[e].forward_bits_per_second, &link.forward);
    scale(ratios[e].backward, seen.edges[e].backward_bits_per_second, &link.backward);
  }
}

double RoundTripSeconds(const LinkRates& link) {
  return absl::ToDoubleSeconds(link.forward.latency + link.backward.latency);
}

StatusOr<NetworkRates> NetworkAsSeen(const RunSpec& spec, const Plan& plan, const Seen& seen,
                                     const std::stop_token& stop) {
  NetworkRates network = NetworkOf(plan);
  for (size_t e = 0; e < network.links.size(); ++e) {
    LinkRates& link = network.links[e];
    const std::optional<double>& trip = seen.edges[e].round_trip_seconds;
    if (trip && RoundTripsAreApart(trip, RoundTripSeconds(link))) {
      link.forward.latency = link.backward.latency = absl::Seconds(*trip / 2);
    }
  }
  const auto ratios = [&]() -> StatusOr<std::vector<Ratio>> {
    const schedule::PipelineCost cost = PipelineCostOf(plan, spec, network);
    LH_ASSIGN_OR_RETURN(const schedule::Simulation simulation, schedule::Simulate(cost, stop));
    return RatiosTo(cost, simulation, seen);
  };
  LH_ASSIGN_OR_RETURN(const std::vector<Ratio> as_planned, ratios());
  ScaleInterfaces(plan.assignment, as_planned, &network);
  LH_ASSIGN_OR_RETURN(const std::vector<Ratio> unexplained, ratios());
  ScalePairs(unexplained, seen, &network);
  return network;
}

// The sentence of the largest of the differences that it is told.
class LargestDifference {
 public:
  template <class Sentence>
  void Consider(double was, double is, const Sentence& sentence) {
    if (!(was > 0) || !(is > 0)) return;
    const double by = std::abs(std::log(is / was));
    if (by <= largest_) return;
    largest_ = by;
    text_ = sentence();
  }
  const std::string& text() const { return text_; }

 private:
  double largest_ = 0;
  std::string text_;
};

// The difference that is largest, of `before` and `after`.
std::string WhatChanged(const Plan& before, const Plan& after) {
  LargestDifference largest;
  const Assignment& assignment = before.assignment;
  for (size_t c = 0; c < before.cells.size(); ++c) {
    const CellEstimate &was = before.cells[c], &is = after.cells[c];
    const double old_time = was.forward_seconds + was.backward_seconds;
    const double new_time = is.forward_seconds + is.backward_seconds;
    largest.Consider(old_time, new_time, [&] {
      return fmt::format("a microbatch takes {} {} where {} were planned",
                         assignment.cells[c].worker_name, FormatSeconds(new_time),
                         FormatSeconds(old_time));
    });
  }
  const NetworkRates old_network = NetworkOf(before), new_network = NetworkOf(after);
  for (size_t e = 0; e < assignment.edges.size(); ++e) {
    const Edge& edge = assignment.edges[e];
    const auto name = [&](const CellId& cell) { return assignment.Find(cell)->worker_name; };
    for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
      const double was = 8 * AloneBytesPerSecond(old_network, assignment, e, direction);
      const double is = 8 * AloneBytesPerSecond(new_network, assignment, e, direction);
      const CellId& sender = direction == Direction::kForward ? edge.from : edge.to;
      largest.Consider(was, is, [&] {
        return fmt::format("{} gets {} to {} where {} were planned", name(sender),
                           FormatBitsPerSecond(is), name(edge.PeerOf(sender)),
                           FormatBitsPerSecond(was));
      });
    }
    const double was = RoundTripSeconds(old_network.links[e]);
    const double is = RoundTripSeconds(new_network.links[e]);
    // From nothing to something is a change that has no ratio.
    largest.Consider(std::max(was, 0.001), std::max(is, 0.001), [&] {
      return fmt::format("a round trip between {} and {} takes {} where {} were planned",
                         name(edge.from), name(edge.to), FormatSeconds(is), FormatSeconds(was));
    });
  }
  return largest.text();
}

std::string DepthsOf(const Plan& plan) {
  std::string text;
  for (const Cell& cell : plan.assignment.cells) {
    text += fmt::format("{}{}", text.empty() ? "" : ", ", cell.setting.depth);
  }
  return text;
}

void SetTimes(const Seen& seen, Plan* plan) {
  for (size_t c = 0; c < plan->cells.size(); ++c) {
    CellEstimate& cell = plan->cells[c];
    cell.forward_seconds = seen.cells[c].forward_seconds;
    cell.backward_seconds = seen.cells[c].backward_seconds;
    cell.optimizer_seconds = seen.cells[c].optimizer_seconds;
  }
}

// What was seen of one replica, in the places of ReplicaOf's cells and edges.
Seen SeenOf(const Assignment& assignment, const Seen& seen, uint32_t replica) {
  Seen part;
  for (size_t c = 0; c < assignment.cells.size(); ++c) {
    if (assignment.cells[c].id.replica == replica) part.cells.push_back(seen.cells[c]);
  }
  for (size_t e = 0; e < assignment.edges.size(); ++e) {
    const Edge& edge = assignment.edges[e];
    if (edge.kind == EdgeKind::kReplicas || edge.from.replica != replica) continue;
    part.edges.push_back(seen.edges[e]);
  }
  return part;
}

// What was chosen and is expected of each replica, to the plan of all. What is said of one replica
// is said of the slowest.
void TakeParts(const std::vector<Plan>& parts, uint32_t slowest, Plan* all) {
  const Prediction& chosen = parts[slowest].prediction;
  Prediction& prediction = all->prediction;
  prediction.step_seconds = chosen.step_seconds;
  prediction.lower_bound_seconds = chosen.lower_bound_seconds;
  prediction.bottleneck = chosen.bottleneck;
  prediction.floor_seconds = chosen.floor_seconds;
  prediction.busiest = chosen.busiest;
  prediction.busiest_bytes = chosen.busiest_bytes;
  prediction.unlimited_depth_step_seconds = chosen.unlimited_depth_step_seconds;
  prediction.exchange_seconds = 0;
  prediction.order_reason = chosen.order_reason;
  prediction.cut_short = chosen.cut_short;
  prediction.cells.clear();
  prediction.edges.clear();
  size_t cell = 0, edge = 0;  // those between replicas come last
  for (const Plan& part : parts) {
    for (size_t c = 0; c < part.cells.size(); ++c, ++cell) {
      all->assignment.cells[cell].setting = part.assignment.cells[c].setting;
      all->cells[cell] = part.cells[c];
      prediction.cells.push_back(part.prediction.cells[c]);
    }
    for (size_t e = 0; e < part.edges.size(); ++e, ++edge) {
      all->assignment.edges[edge] = part.assignment.edges[e];
      prediction.edges.push_back(part.prediction.edges[e]);
    }
  }
  prediction.edges.resize(all->assignment.edges.size());
}

}  // namespace

Seen SeenIn(const RunSpec& spec, const Assignment& assignment,
            std::span<const std::optional<v1::StepReport>> reports) {
  Seen seen;
  for (const std::optional<v1::StepReport>& report : reports) {
    seen.cells.push_back({Sane(report->forward_seconds()) / spec.train.microbatches,
                          Sane(report->backward_seconds()) / spec.train.microbatches,
                          Sane(report->optimizer_seconds())});
  }
  for (const Edge& edge : assignment.edges) {
    const v1::StepReport& upper = *reports[assignment.PlaceOf(edge.from)];
    const v1::StepReport& lower = *reports[assignment.PlaceOf(edge.to)];
    SeenEdge& one = seen.edges.emplace_back();
    // What goes over a tied edge once a step is in no measure of its links.
    if (edge.kind != EdgeKind::kActivations) continue;
    one.forward_bits_per_second = RateOf(lower, edge.id);
    one.backward_bits_per_second = RateOf(upper, edge.id);
    const double wait = Sane(lower.norm_wait_seconds());
    // The norm queues behind what an end of a tied matrix still has under way.
    const bool queues = !assignment.EdgesOf(edge.from, EdgeKind::kTied).empty() ||
                        !assignment.EdgesOf(edge.to, EdgeKind::kTied).empty();
    if (wait > 0 && !queues) {
      one.round_trip_seconds =
          std::max(wait - Sane(upper.norm_wait_seconds()) - Sane(upper.norm_turn_seconds()), 0.0);
    }
  }
  return seen;
}

Seen MedianOf(std::span<const Seen> steps) {
  Seen median;
  for (size_t s = 0; s < steps.front().cells.size(); ++s) {
    const auto of = [&](double SeenCell::*value) {
      return MedianOfKnown(
                 steps,
                 [&](const Seen& step) -> std::optional<double> { return step.cells[s].*value; })
          .value_or(0.0);  // every step knows it
    };
    median.cells.push_back({of(&SeenCell::forward_seconds), of(&SeenCell::backward_seconds),
                            of(&SeenCell::optimizer_seconds)});
  }
  for (size_t b = 0; b < steps.front().edges.size(); ++b) {
    const auto of = [&](std::optional<double> SeenEdge::*value) {
      return MedianOfKnown(steps, [&](const Seen& step) { return step.edges[b].*value; });
    };
    median.edges.push_back({of(&SeenEdge::forward_bits_per_second),
                            of(&SeenEdge::backward_bits_per_second),
                            of(&SeenEdge::round_trip_seconds)});
  }
  return median;
}

bool Differs(const Seen& some, const Seen& others) {
  for (size_t s = 0; s < some.cells.size(); ++s) {
    const SeenCell &a = some.cells[s], &b = others.cells[s];
    if (AreApart(a.forward_seconds + a.backward_seconds, b.forward_seconds + b.backward_seconds)) {
      return true;
    }
  }
  for (size_t i = 0; i < some.edges.size(); ++i) {
    const SeenEdge &a = some.edges[i], &b = others.edges[i];
    if (AreApart(a.forward_bits_per_second, b.forward_bits_per_second) ||
        AreApart(a.backward_bits_per_second, b.backward_bits_per_second) ||
        RoundTripsAreApart(a.round_trip_seconds, b.round_trip_seconds)) {
      return true;
    }
  }
  return false;
}

bool MayRetune(const RunSpec& spec, const Plan& plan) {
  return !plan.assignment.edges.empty() && TraitsOf(spec.pipeline.schedule).may_change_depth() &&
         !spec.pipeline.depth && RatesAreKnown(plan);
}

uint32_t MostDepth(const RunSpec& spec, const CellEstimate& cell) {
  return cell.depth_by_memory > 0 ? cell.depth_by_memory : spec.train.microbatches;
}

StatusOr<std::optional<Plan>> Retune(const RunSpec& spec, const Plan& plan, const Seen& seen,
                                     const std::stop_token& stop,
                                     const schedule::SearchLimit& limit) {
  Plan better = plan;
  SetTimes(seen, &better);
  const uint32_t replicas = ReplicasOf(plan.assignment);
  std::vector<Plan> parts;
  double before = 0;
  uint32_t slowest = 0;  // of the parts, each as deep as memory allows
  absl::Duration longest;
  for (uint32_t replica = 0; replica < replicas; ++replica) {
    Plan& part = parts.emplace_back(ReplicaOf(better, replica));
    LH_ASSIGN_OR_RETURN(const NetworkRates network,
                        NetworkAsSeen(spec, part, SeenOf(plan.assignment, seen, replica), stop));
    SetNetwork(network, &part);
    LH_ASSIGN_OR_RETURN(const schedule::Simulation as_it_is,
                        schedule::Simulate(PipelineCostOf(part, spec, network), stop));
    before = std::max(before, absl::ToDoubleSeconds(as_it_is.step));
    for (size_t c = 0; c < part.cells.size(); ++c) {
      part.assignment.cells[c].setting.depth = MostDepth(spec, part.cells[c]);
    }
    LH_ASSIGN_OR_RETURN(const schedule::Simulation deep,
                        schedule::Simulate(PipelineCostOf(part, spec, network), stop));
    if (deep.step > longest) longest = deep.step, slowest = replica;
  }
  LH_RETURN_IF_ERROR(ChooseOrder(spec, &parts[slowest], stop, Effort::kWhole, limit));
  for (uint32_t replica = 0; replica < replicas; ++replica) {
    Plan& part = parts[replica];
    if (replica != slowest) {
      LH_RETURN_IF_ERROR(ChooseOrderLike(spec, parts[slowest], &part, stop, limit));
    }
    LH_RETURN_IF_ERROR(AddPrediction(spec, &part, stop));
  }
  TakeParts(parts, slowest, &better);
  if (replicas > 1) {
    LH_ASSIGN_OR_RETURN(const ReplicasStep step, PredictReplicas(better, spec, stop));
    step.Set(&better.prediction);
    before += step.exchange_seconds;
  }
  const double after = better.prediction.step_seconds;
  if (after >= before * (1 - kLeastGain)) return std::nullopt;
  std::vector<Cell>& cells = better.assignment.cells;
  for (size_t c = 0; c < cells.size(); ++c) {
    const uint64_t per_flight = better.cells[c].memory_per_flight_bytes;
    cells[c].memory_bytes +=
        per_flight * cells[c].setting.depth - per_flight * plan.assignment.cells[c].setting.depth;
  }
  if (limit.HasEndedSearches()) better.prediction.cut_short = limit.Words();
  better.retunes = plan.retunes + 1;
  better.retune_reason =
      fmt::format("{}; depths go from {} to {}, {}; a step is predicted to take {} instead of {}",
                  WhatChanged(plan, better), DepthsOf(plan), DepthsOf(better),
                  better.prediction.order_reason, FormatSeconds(after), FormatSeconds(before));
  return better;
}

}  // namespace longhaul::coordinator
