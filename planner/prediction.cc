#include "planner/prediction.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "planner/links.h"
#include "planner/order.h"
#include "run/kinds/link_pairs.h"
#include "run/schedule/simulator.h"

namespace longhaul::coordinator {
namespace {

LinkMeasurement Measured(const CandidateWorker& from, const CandidateWorker& to) {
  const auto it = from.to.find(to.id);
  return it == from.to.end() ? LinkMeasurement{} : it->second;
}

// What the run file's topology puts between two workers; null: nothing.
const TopologyLink* EmulatedBetween(const RunSpec& spec, const std::string& a,
                                    const std::string& b) {
  if (!spec.topology) return nullptr;
  const auto region_of = [&](const std::string& worker) -> std::string_view {
    for (const TopologyRegion& region : spec.topology->regions) {
      const auto& names = region.workers;
      if (std::find(names.begin(), names.end(), worker) != names.end()) return region.name;
    }
    return {};
  };
  const std::string_view one = region_of(a), other = region_of(b);
  if (one.empty() || other.empty()) return nullptr;
  for (const TopologyLink& link : spec.topology->links) {
    if ((link.one == one && link.other == other) || (link.one == other && link.other == one)) {
      return &link;
    }
  }
  return nullptr;
}

double Seconds(absl::Duration duration) {
  return absl::ToDoubleSeconds(duration);
}

struct NamedCodecs {
  std::string_view name;
  CodecPair codecs;
};

// What people ask about: fp32 and bf16 on the links, and the pairs with names.
std::vector<NamedCodecs> CommonCodecs() {
  std::vector<NamedCodecs> all = {{"none", {"none", "none"}}, {"bf16", {"bf16", "bf16"}}};
  for (const LinkPair& pair : kLinkPairs) {
    const CodecPair codecs{CodecSpec(pair.forward), CodecSpec(pair.backward)};
    if (!codecs.is_auto() && codecs != all.front().codecs) all.push_back({pair.name, codecs});
  }
  return all;
}

// Times of `codec` in one direction: measured ones for the run's own codec and for others that the
// workers have timed, else those of a replay's run file. nullopt: nothing is known.
std::optional<FlowEstimate> TimesOf(const PlanRequest& request, const CodecSpec& codec,
                                    const Flow& own, const FlowEstimate& measured,
                                    const CellId& sender, const CellId& receiver) {
  if (codec == own.codec) return measured;
  const CandidateWorker &from = request.workers[sender.stage],
                        &to = request.workers[receiver.stage];
  const auto has_timed = [&codec](const CandidateWorker& worker) {
    return std::ranges::find(worker.times.codecs(), ToString(codec), &v1::CodecTimes::codec) !=
           worker.times.codecs().end();
  };
  if (has_timed(from) && has_timed(to)) {
    return CodecTimesOf(from, to, codec, Direction::kForward);  // no matter which
  }
  const ReplaySpec::CodecTimes* const replayed =
      request.spec.replay ? request.spec.replay->TimesOf(codec) : nullptr;
  if (replayed == nullptr) return std::nullopt;
  return FlowEstimate{.encode_seconds = Seconds(replayed->encode),
                      .decode_seconds = Seconds(replayed->decode)};
}

// The plan with these codecs in all edges. False in `known`: some codec's times are not known and
// count as none.
StatusOr<Plan> WithCodecs(const PlanRequest& request, const CodecPair& codecs, const Plan& plan,
                          bool* known) {
  PlanRequest other = request;
  other.spec.links.codecs = codecs;
  for (auto& [worker, exception] : other.spec.links.by_worker) exception.codecs = codecs;
  Plan changed = plan;
  LH_RETURN_IF_ERROR(AddEdges(other, &changed));
  SetNetwork(NetworkOf(plan), &changed);
  *known = true;
  for (size_t e = 0; e < changed.edges.size(); ++e) {
    const Edge &edge = changed.assignment.edges[e], &own = plan.assignment.edges[e];
    const auto down = TimesOf(request, edge.forward.codec, own.forward, plan.edges[e].forward,
                              edge.from, edge.to);
    const auto up = TimesOf(request, edge.backward.codec, own.backward, plan.edges[e].backward,
                            edge.to, edge.from);
    *known &= down && up;
    changed.edges[e] = {down.value_or(FlowEstimate{}), up.value_or(FlowEstimate{})};
  }
  return changed;
}

CodecPrediction Summary(const RunSpec& spec, std::string name, const Plan& plan, bool known) {
  const Prediction& prediction = plan.prediction;
  const Edge& first = plan.assignment.edges.front();
  CodecPrediction row{.name = std::move(name),
                      .forward_codec = ToString(first.forward.codec),
                      .backward_codec = ToString(first.backward.codec),
                      .step_seconds = prediction.step_seconds,
                      .lower_bound_seconds = prediction.lower_bound_seconds,
                      .bottleneck = prediction.bottleneck,
                      .codec_times_known = known};
  for (const Edge& edge : plan.assignment.edges) {
    if (edge.kind != EdgeKind::kActivations) continue;
    row.forward_bytes = std::max(row.forward_bytes, edge.forward.bytes);
    row.backward_bytes = std::max(row.backward_bytes, edge.backward.bytes);
  }
  if (prediction.step_seconds > 0) {
    row.tokens_per_second = static_cast<double>(spec.TokensPerStep()) / prediction.step_seconds;
  }
  return row;
}

// Edges through one relay share its line, of which as much is known as the fastest of them had when
// it was measured alone.
void ShareRelays(const Assignment& assignment, NetworkRates* network) {
  struct Use {
    double edges = 0, forward = 0, backward = 0;
  };
  std::map<std::string, Use> uses;
  const auto known = [](double rate) { return rate == schedule::kUnlimited ? 0 : rate; };
  for (size_t e = 0; e < assignment.edges.size(); ++e) {
    if (assignment.edges[e].relays.empty()) continue;
    Use& use = uses[assignment.edges[e].relays.front().worker.value()];
    use.edges += 1;
    use.forward = std::max(use.forward, known(network->links[e].forward.bytes_per_second));
    use.backward = std::max(use.backward, known(network->links[e].backward.bytes_per_second));
  }
  for (size_t e = 0; e < assignment.edges.size(); ++e) {
    if (assignment.edges[e].relays.empty()) continue;
    const Use& use = uses[assignment.edges[e].relays.front().worker.value()];
    const auto limit = [&](double line, FlowRates* flow) {
      if (line > 0) flow->bytes_per_second = std::min(flow->bytes_per_second, line / use.edges);
    };
    limit(use.forward, &network->links[e].forward);
    limit(use.backward, &network->links[e].backward);
  }
}

}  // namespace

InterfaceRates InterfaceOf(const PlanRequest& request, const CandidateWorker& worker) {
  if (request.assumed_line_bits_per_second) {
    const double goodput = GoodputBytesPerSecond(*request.assumed_line_bits_per_second);
    return {goodput, goodput};
  }
  double egress = 0, ingress = 0;
  for (const CandidateWorker& other : request.workers) {
    const LinkMeasurement out = Measured(worker, other), in = Measured(other, worker);
    if (!out.is_estimate) egress = std::max(egress, out.bits_per_second);
    if (!in.is_estimate) ingress = std::max(ingress, in.bits_per_second);
  }
  if (worker.egress_bits_per_second > 0) egress = worker.egress_bits_per_second;
  if (worker.ingress_bits_per_second > 0) ingress = worker.ingress_bits_per_second;
  return {BytesPerSecond(egress), BytesPerSecond(ingress)};
}

FlowRates RatesBetween(const PlanRequest& request, const CandidateWorker& from,
                       const CandidateWorker& to) {
  const LinkMeasurement measured = Measured(from, to);
  const TopologyLink* const emulated = EmulatedBetween(request.spec, from.name, to.name);
  FlowRates rates{BytesPerSecond(measured.bits_per_second), measured.latency};
  // What was measured has the topology in it.
  if (emulated != nullptr && (measured.bits_per_second == 0 || measured.is_estimate)) {
    rates = {GoodputBytesPerSecond(emulated->bits_per_second), emulated->quality.delay};
  }
  if (request.assumed_line_bits_per_second) rates.bytes_per_second = schedule::kUnlimited;
  if (request.assumed_delay) rates.latency = *request.assumed_delay;
  return rates;
}

NetworkRates NetworkFor(const PlanRequest& request, const Assignment& assignment) {
  NetworkRates network;
  for (const CandidateWorker& worker : request.workers) {
    network.interfaces.push_back(InterfaceOf(request, worker));
  }
  for (const Edge& edge : assignment.edges) {
    const CandidateWorker& upper = request.workers[assignment.PlaceOf(edge.from)];
    const CandidateWorker& lower = request.workers[assignment.PlaceOf(edge.to)];
    network.links.push_back(
        {RatesBetween(request, upper, lower), RatesBetween(request, lower, upper)});
  }
  ShareRelays(assignment, &network);
  return network;
}

Status AddPrediction(const RunSpec& spec, Plan* plan, const std::stop_token& stop) {
  LH_ASSIGN_OR_RETURN(const schedule::Simulation simulation,
                      schedule::Simulate(PipelineCostOf(*plan, spec, NetworkOf(*plan)), stop));
  Prediction& prediction = plan->prediction;
  prediction.step_seconds = Seconds(simulation.step);
  prediction.lower_bound_seconds = Seconds(simulation.lower_bound);
  prediction.bottleneck = simulation.bottleneck;
  prediction.floor_seconds = Seconds(simulation.busiest.step);
  prediction.busiest = simulation.busiest.name;
  prediction.busiest_bytes = static_cast<uint64_t>(std::llround(simulation.busiest.bytes));
  prediction.cells.clear();
  for (const schedule::StageUse& use : simulation.stages) {
    prediction.cells.push_back({.compute_seconds = Seconds(use.time.compute),
                                .codec_seconds = Seconds(use.time.codec),
                                .wait_above_seconds = Seconds(use.time.wait_above),
                                .wait_below_seconds = Seconds(use.time.wait_below),
                                .optimizer_seconds = Seconds(use.time.optimizer),
                                .egress_share = use.egress_share,
                                .ingress_share = use.ingress_share});
  }
  prediction.edges.clear();
  const auto flow = [](const schedule::DirectionUse& use) -> PredictedFlow {
    return {.busy_share = use.busy_share, .rate_share = use.rate_share};
  };
  for (const schedule::BoundaryUse& use : simulation.boundaries) {
    prediction.edges.push_back({flow(use.forward), flow(use.backward)});
  }
  if (simulation.tied) {
    prediction.edges.push_back({flow(simulation.tied->forward), flow(simulation.tied->backward)});
  }
  return absl::OkStatus();
}

Status AddCodecTable(const PlanRequest& request, const std::vector<uint32_t>& depths,
                     const std::stop_token& stop, Plan* plan) {
  if (plan->assignment.edges.empty()) return absl::OkStatus();
  Plan deep = *plan;
  for (size_t s = 0; s < depths.size(); ++s) deep.assignment.cells[s].setting.depth = depths[s];
  const Edge& first = plan->assignment.edges.front();
  std::vector<CodecPrediction> rows;
  std::string own_name = "this run";
  for (const NamedCodecs& one : CommonCodecs()) {
    const bool own = request.spec.links.by_worker.empty() && !request.spec.links.HasAutoCodecs() &&
                     CodecSpec(*one.codecs.forward.Get()) == first.forward.codec &&
                     CodecSpec(*one.codecs.backward.Get()) == first.backward.codec;
    if (own) {
      rows.push_back(Summary(request.spec, std::string(one.name) + " (this run)", *plan, true));
      own_name.clear();
      continue;
    }
    bool known = false;
    LH_ASSIGN_OR_RETURN(Plan other, WithCodecs(request, one.codecs, deep, &known));
    LH_RETURN_IF_ERROR(ChooseOrder(request.spec, &other, stop, Effort::kWhole, request.limit));
    LH_RETURN_IF_ERROR(AddPrediction(request.spec, &other, stop));
    rows.push_back(Summary(request.spec, std::string(one.name), other, known));
  }
  if (!own_name.empty()) rows.push_back(Summary(request.spec, own_name, *plan, true));
  plan->prediction.codecs = std::move(rows);
  return absl::OkStatus();
}

}  // namespace longhaul::coordinator
