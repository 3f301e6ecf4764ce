// What a step of a plan with replicas takes.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "planner/pipeline_cost.h"
#include "planner/replicas.h"
#include "run/schedule/simulator.h"
#include "transport/replicas/outer_step.h"
#include "transport/replicas/parameters.h"
#include "transport/replicas/traffic.h"

namespace longhaul::coordinator {
namespace {

// What the replicas of each stage send each other in one exchange, on the plan's network.
class Exchange {
 public:
  enum Part : uint8_t { kGradients, kParameters, kAll };
  struct Transfer {
    CellId from, to;
    std::array<double, 3> bytes = {};          // by Part
    double link_bytes_per_second = 0;          // of the pair, whatever the interfaces do
    double bytes_per_second = 0, latency = 0;  // alone
  };

  static StatusOr<Exchange> Of(const Plan& plan, const RunSpec& spec) {
    Exchange exchange(plan);
    const Assignment& assignment = plan.assignment;
    LH_ASSIGN_OR_RETURN(exchange.layouts_, LayoutsOf(spec, assignment));
    for (size_t e = 0; e < assignment.edges.size(); ++e) {
      const Edge& edge = assignment.edges[e];
      if (edge.kind != EdgeKind::kReplicas) continue;
      const replicas::Layout& layout = exchange.layouts_[edge.from.stage];
      const LinkRates& link = exchange.network_.links[e];
      exchange.Add(edge.from, edge.to, layout, link.forward,
                   AloneBytesPerSecond(exchange.network_, assignment, e, Direction::kForward));
      exchange.Add(edge.to, edge.from, layout, link.backward,
                   AloneBytesPerSecond(exchange.network_, assignment, e, Direction::kBackward));
    }
    return exchange;
  }

  const replicas::Layout& layout(uint32_t stage) const { return layouts_[stage]; }
  const std::vector<Transfer>& pairs() const { return pairs_; }
  double sent(size_t cell) const { return sent_[cell][kAll]; }
  double received(size_t cell) const { return received_[cell][kAll]; }

  // Seconds of the longest transfer among the replicas of a stage.
  double Seconds(uint32_t stage, Part part) const {
    double transfer = 0;
    for (const Transfer& pair : pairs_) {
      if (pair.from.stage != stage) continue;
      transfer = std::max(transfer, pair.bytes[part] / pair.bytes_per_second);
    }
    for (size_t c = 0; c < sent_.size(); ++c) {
      if (assignment_.cells[c].id.stage != stage) continue;
      transfer =
          std::max({transfer, sent_[c][part] / network_.interfaces[c].egress_bytes_per_second,
                    received_[c][part] / network_.interfaces[c].ingress_bytes_per_second});
    }
    return transfer;
  }
  double Latency(uint32_t stage) const {
    double latency = 0;
    for (const Transfer& pair : pairs_) {
      if (pair.from.stage == stage) latency = std::max(latency, pair.latency);
    }
    return latency;
  }

 private:
  explicit Exchange(const Plan& plan)
      : assignment_(plan.assignment),
        network_(NetworkOf(plan)),
        sent_(assignment_.cells.size()),
        received_(assignment_.cells.size()) {}

  void Add(const CellId& from, const CellId& to, const replicas::Layout& layout,
           const FlowRates& link, double alone) {
    const replicas::ExchangeTraffic traffic = UsualTraffic(layout, from.replica, to.replica);
    Transfer pair{.from = from,
                  .to = to,
                  .link_bytes_per_second = link.bytes_per_second,
                  .bytes_per_second = alone,
                  .latency = absl::ToDoubleSeconds(link.latency)};
    pair.bytes[kGradients] = static_cast<double>(WithChunkHeaders(traffic.gradients));
    pair.bytes[kParameters] = static_cast<double>(WithChunkHeaders(traffic.parameters));
    pair.bytes[kAll] = static_cast<double>(WithChunkHeaders(traffic.total()));
    for (const Part part : {kGradients, kParameters, kAll}) {
      sent_[assignment_.PlaceOf(from)][part] += pair.bytes[part];
      received_[assignment_.PlaceOf(to)][part] += pair.bytes[part];
    }
    pairs_.push_back(pair);
  }

  const Assignment& assignment_;
  const NetworkRates network_;
  std::vector<std::array<double, 3>> sent_, received_;  // as the assignment's cells, by Part
  std::vector<Transfer> pairs_;
  std::vector<replicas::Layout> layouts_;  // by stage
};

// Takes the plan of one replica. Whether gradients of a stage leave while its last backward of a
// step runs (Executor::RunBackward): it is the first one, not on a GPU or of ranks
// (Stage::TellWhatIsFinal), and another backward was before.
bool GivesBesideBackward(const Plan& plan, const RunSpec& spec, size_t cell) {
  return !spec.replicas.trains_apart() && plan.assignment.cells[cell].id.stage == 0 &&
         plan.cells[cell].device_kind == "cpu" && plan.assignment.cells[cell].devices.size() < 2 &&
         !(spec.model.TrainsTiedMatrix() && plan.assignment.cells.size() > 1) &&
         spec.train.microbatches * plan.assignment.slices > 1;
}

// Adds what the exchange of a replica's stages takes to what the simulator is told of its plan.
void AddExchange(const Exchange& exchange, const RunSpec& spec, const Plan& plan,
                 schedule::PipelineCost* cost) {
  for (uint32_t s = 0; s < cost->stages.size(); ++s) {
    const Cell& cell = plan.assignment.cells[s];
    double last = 1;
    if (GivesBesideBackward(plan, spec, s)) {
      const auto parameters =
          ParametersOf(spec, plan.assignment.data.vocabulary, cell.layers, cell.roles);
      const replicas::Layout& layout = exchange.layout(s);
      last = ShareFinalAtTheEnd(layout, FinalWith(layout, parameters, cell.layers.first));
    }
    const double latencies = replicas::MessagesOfSum(spec.replicas.gradients) * exchange.Latency(s);
    const double sum = exchange.Seconds(s, Exchange::kGradients);
    cost->stages[s].reduce = absl::Seconds(sum + latencies);
    cost->stages[s].reduce_last = absl::Seconds(last * sum + latencies);
    cost->stages[s].gather =
        absl::Seconds(exchange.Seconds(s, Exchange::kParameters) + exchange.Latency(s));
  }
  cost->replicas_agree = 2 * absl::Seconds(exchange.Latency(0));
}

// Seconds by which an exchange outlasts the `steps` steps beside which it travels. Tensors go
// first, so the exchange has what they leave of the line.
double Outlasts(const Exchange& exchange, const schedule::Simulation& passes, uint64_t steps) {
  double longest = 0;
  for (uint32_t s = 0; s < passes.stages.size(); ++s) {
    const schedule::StageUse& use = passes.stages[s];
    const double free = 1 - std::max(use.egress_share, use.ingress_share);
    longest = std::max(longest,
                       exchange.Seconds(s, Exchange::kAll) + 2 * exchange.Latency(s) -
                           static_cast<double>(steps) * free * absl::ToDoubleSeconds(passes.step));
  }
  return longest;
}

}  // namespace

void ReplicasStep::Set(Prediction* prediction) const {
  prediction->unlimited_depth_step_seconds += exchange_seconds - prediction->exchange_seconds;
  prediction->exchange_seconds = exchange_seconds;
  prediction->step_seconds = step_seconds;
  prediction->lower_bound_seconds = lower_bound_seconds;
  prediction->bottleneck = bottleneck;
  prediction->floor_seconds = floor_seconds;
  prediction->busiest = busiest;
  prediction->busiest_bytes = busiest_bytes;
}

StatusOr<ReplicasStep> PredictReplicas(const Plan& plan, const RunSpec& spec,
                                       const std::stop_token& stop) {
  const uint32_t replicas = ReplicasOf(plan.assignment), apart = spec.replicas.steps_apart();
  const uint64_t delay =
      spec.replicas.trains_apart() ? replicas::DelaySteps(spec.replicas.gradients.local) : 0;
  LH_ASSIGN_OR_RETURN(const Exchange exchange, Exchange::Of(plan, spec));
  ReplicasStep step;
  const auto of_replica = [](const std::string& name, uint32_t replica) {
    return replica == 0 ? name : fmt::format("{} of replica {}", name, replica);
  };
  const auto consider = [&step](double seconds, double bytes, std::string name) {
    if (!(seconds > step.floor_seconds)) return;
    step.floor_seconds = seconds;
    step.busiest_bytes = static_cast<uint64_t>(std::llround(bytes));
    step.busiest = std::move(name);
  };
  double overlap = 0;  // of the replica that sets the bound
  for (uint32_t r = 0; r < replicas; ++r) {
    const Plan one = ReplicaOf(plan, r);
    schedule::PipelineCost cost = PipelineCostOf(one, spec, NetworkOf(one));
    LH_ASSIGN_OR_RETURN(const schedule::Simulation simulation, schedule::Simulate(cost, stop));
    const double passes = absl::ToDoubleSeconds(simulation.step);
    const double bound = absl::ToDoubleSeconds(simulation.lower_bound);
    if (passes > step.passes_seconds) step.passes_seconds = passes, step.slowest = r;
    AddExchange(exchange, spec, one, &cost);
    LH_ASSIGN_OR_RETURN(const schedule::Simulation exchanging, schedule::Simulate(cost, stop));
    const double longer = delay > 0 ? Outlasts(exchange, simulation, delay)
                                    : absl::ToDoubleSeconds(exchanging.step) - passes;
    step.step_seconds = std::max(step.step_seconds, passes + longer / apart);
    if (bound > step.lower_bound_seconds) {
      step.lower_bound_seconds = bound;
      step.bottleneck = of_replica(simulation.bottleneck, r);
      overlap = absl::ToDoubleSeconds(cost.stages.front().backward);
    }
    for (size_t s = 0; s < cost.stages.size(); ++s) {
      const size_t cell = plan.assignment.PlaceOf(one.assignment.cells[s].id);
      cost.stages[s].exchange_sent_bytes = exchange.sent(cell) / apart;
      cost.stages[s].exchange_received_bytes = exchange.received(cell) / apart;
    }
    const schedule::BusiestResource busiest = schedule::FindBusiestResource(cost);
    consider(absl::ToDoubleSeconds(busiest.step), busiest.bytes, of_replica(busiest.name, r));
  }
  step.exchange_seconds = step.step_seconds - step.passes_seconds;
  for (const Exchange::Transfer& pair : exchange.pairs()) {
    const double bytes = pair.bytes[Exchange::kAll] / apart;
    consider(bytes / pair.link_bytes_per_second, bytes,
             fmt::format("link from stage {} of replica {} to the same of replica {}",
                         pair.from.stage, pair.from.replica, pair.to.replica));
  }
  // Gradients and parameters, there and back; in the steps of a delay they may hide.
  const double first =
      delay > 0 ? 0
                : (exchange.Seconds(0, Exchange::kAll) + 2 * exchange.Latency(0)) / apart - overlap;
  if (first > step.lower_bound_seconds) {
    step.bottleneck = "exchange of stage 0 between replicas";
  }
  step.lower_bound_seconds += std::max(first, 0.0);
  if (step.floor_seconds > step.lower_bound_seconds) {
    step.lower_bound_seconds = step.floor_seconds;
    step.bottleneck = step.busiest;
  }
  return step;
}

}  // namespace longhaul::coordinator
