#include "coordinator/planner/replicas.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/units.h"
#include "coordinator/planner/links.h"
#include "coordinator/planner/pipeline_cost.h"
#include "coordinator/planner/prediction.h"
#include "run/model/family.h"
#include "run/plan/chain.h"
#include "transport/replicas/parameters.h"
#include "transport/replicas/traffic.h"

namespace longhaul::coordinator {
namespace {

// Each time of `times` becomes that of `other`, where it is longer.
void TakeLonger(const v1::LayerTimes& other, v1::LayerTimes* times) {
  const auto take = [&](auto get, auto set) {
    (times->*set)(std::max((times->*get)(), (other.*get)()));
  };
  using T = v1::LayerTimes;
  take(&T::embedding_forward, &T::set_embedding_forward);
  take(&T::embedding_backward, &T::set_embedding_backward);
  take(&T::block_forward, &T::set_block_forward);
  take(&T::block_backward, &T::set_block_backward);
  take(&T::head_forward, &T::set_head_forward);
  take(&T::head_backward, &T::set_head_backward);
  take(&T::optimizer_seconds_per_parameter, &T::set_optimizer_seconds_per_parameter);
}

// 0 is unknown, and taken to suffice.
void TakeLess(uint64_t other, uint64_t* bytes) {
  if (other > 0) *bytes = *bytes == 0 ? other : std::min(*bytes, other);
}

class ReplicasPlanner {
 public:
  ReplicasPlanner(const PlanRequest& request, const std::stop_token& stop)
      : request_(request),
        stop_(stop),
        replicas_(request.spec.replicas.count),
        stages_(static_cast<uint32_t>(request.workers.size() / replicas_)) {}

  StatusOr<Plan> Make() {
    if (stages_ == 0 || request_.workers.size() != size_t{replicas_} * stages_) {
      return absl::InvalidArgumentError(
          fmt::format("expected as many workers for each of {} replicas, got {} workers", replicas_,
                      request_.workers.size()));
    }
    LH_ASSIGN_OR_RETURN(const std::vector<uint32_t> layers, CommonSplit());
    std::vector<Plan> plans;
    for (uint32_t replica = 0; replica < replicas_; ++replica) {
      PlanRequest one = RequestOf(replica);
      one.layers = layers;
      // The common split has kept that of the checkpoint where it could.
      if (one.resume) one.resume->cells.clear();
      one.with_codec_table = request_.with_codec_table && replica == 0;
      auto plan = MakePlanOfOneReplica(one, stop_);
      if (!plan.ok()) return Annotate(plan.status(), fmt::format("replica {}", replica));
      plans.push_back(*std::move(plan));
    }
    return Join(std::move(plans));
  }

 private:
  std::span<const CandidateWorker> WorkersOf(uint32_t replica) const {
    return std::span(request_.workers).subspan(size_t{replica} * stages_, stages_);
  }

  // Asks for a plan of this replica alone.
  PlanRequest RequestOf(uint32_t replica) const {
    PlanRequest one = request_;
    const auto workers = WorkersOf(replica);
    one.workers.assign(workers.begin(), workers.end());
    if (one.resume) {
      std::erase_if(one.resume->cells,
                    [&](const Cell& cell) { return cell.id.replica != replica; });
    }
    return one;
  }

  // The split that suits the slowest worker of each stage.
  StatusOr<std::vector<uint32_t>> CommonSplit() const {
    PlanRequest slowest = RequestOf(0);
    slowest.with_codec_table = false;
    for (uint32_t replica = 1; replica < replicas_; ++replica) {
      for (uint32_t stage = 0; stage < stages_; ++stage) {
        const CandidateWorker& other = WorkersOf(replica)[stage];
        CandidateWorker& worker = slowest.workers[stage];
        TakeLonger(other.times, &worker.times);
        TakeLess(other.memory_bytes, &worker.memory_bytes);
        TakeLess(other.host_memory_bytes, &worker.host_memory_bytes);
      }
    }
    return SplitFor(slowest);
  }

  // A flow between replicas has the bytes that one direction carries in an exchange.
  Status AddEdgesOfReplicas(Plan* plan) const {
    const RunSpec& spec = request_.spec;
    for (Edge& edge : plan->assignment.edges) {
      if (edge.kind != EdgeKind::kReplicas) continue;
      const Cell& cell = *plan->assignment.Find(edge.from);
      LH_ASSIGN_OR_RETURN(const replicas::Layout layout,
                          LayoutOf(spec, request_.data.vocabulary, cell));
      const CandidateWorker& from = WorkersOf(edge.from.replica)[edge.from.stage];
      const CandidateWorker& to = WorkersOf(edge.to.replica)[edge.to.stage];
      LH_ASSIGN_OR_RETURN(const LinkEnds ends, EndsOf(spec, from, to, edge.kind));
      edge.transport = std::string(ToString(ends.transport));
      edge.to_dials = ends.downstream_dials;
      const std::string codec = replicas::ToString(spec.replicas.gradients);
      edge.forward = {.codec = codec,
                      .bytes = UsualBytes(layout, edge.from.replica, edge.to.replica)};
      edge.backward = {.codec = codec,
                       .bytes = UsualBytes(layout, edge.to.replica, edge.from.replica)};
    }
    return absl::OkStatus();
  }

  // What the replicas' plans say, one behind the other.
  StatusOr<Plan> Join(std::vector<Plan> plans) const {
    size_t slowest = 0;
    for (size_t r = 1; r < plans.size(); ++r) {
      if (plans[r].prediction.step_seconds > plans[slowest].prediction.step_seconds) slowest = r;
    }
    Plan plan = plans[slowest];  // what one replica is said to take
    plan.prediction.codecs = plans.front().prediction.codecs;
    Assignment& assignment = plan.assignment;
    assignment.run_yaml = ToYaml(request_.spec);
    assignment.cells.clear();
    plan.cells.clear();
    plan.edges.clear();
    plan.prediction.cells.clear();
    plan.prediction.edges.clear();
    std::vector<Edge> planned;
    for (uint32_t replica = 0; replica < replicas_; ++replica) {
      Plan& one = plans[replica];
      for (Cell& cell : one.assignment.cells) {
        cell.id.replica = replica;
        assignment.cells.push_back(std::move(cell));
      }
      std::ranges::move(one.assignment.edges, std::back_inserter(planned));
      std::ranges::move(one.cells, std::back_inserter(plan.cells));
      std::ranges::move(one.edges, std::back_inserter(plan.edges));
      std::ranges::move(one.prediction.cells, std::back_inserter(plan.prediction.cells));
      std::ranges::move(one.prediction.edges, std::back_inserter(plan.prediction.edges));
    }
    const bool tied = request_.spec.model.TrainsTiedMatrix();
    assignment.edges = chain::MakeEdges(replicas_, stages_, tied);
    for (size_t e = 0; e < planned.size(); ++e) {  // those of replicas come behind
      Edge& edge = assignment.edges[e];
      planned[e].id = edge.id;
      planned[e].from = edge.from;
      planned[e].to = edge.to;
      edge = std::move(planned[e]);
    }
    plan.edges.resize(assignment.edges.size());
    plan.prediction.edges.resize(assignment.edges.size());
    LH_RETURN_IF_ERROR(AddEdgesOfReplicas(&plan));
    SetNetwork(NetworkFor(request_, assignment), &plan);
    AddExchange(&plan, static_cast<uint32_t>(slowest));
    return plan;
  }

  void AddExchange(Plan* plan, uint32_t slowest) const {
    Prediction& prediction = plan->prediction;
    // Replicas that train apart exchange once in `apart` steps: this is a step's part of it.
    const uint32_t apart = request_.spec.replicas.steps_apart();
    const double exchange = ExchangeSeconds(*plan) / apart;
    uint64_t& copy_every = plan->assignment.copy_every;
    // Copies of states are taken where replicas are alike.
    copy_every = (copy_every + apart - 1) / apart * apart;
    prediction.exchange_seconds = exchange;
    prediction.step_seconds += exchange;
    prediction.unlimited_depth_step_seconds += exchange;
    for (CodecPrediction& row : prediction.codecs) {
      row.step_seconds += exchange;
      row.tokens_per_second = static_cast<double>(request_.spec.TokensPerStep()) / row.step_seconds;
    }
    uint64_t bytes = 0;
    for (const Edge& edge : plan->assignment.edges) {
      if (edge.kind == EdgeKind::kReplicas) bytes += edge.forward.bytes + edge.backward.bytes;
    }
    plan->explanation = fmt::format(
        "{} replicas of {} stages train together, {:.0f} tokens/s in all. Replica {} is the "
        "slowest; workers stand in the order of their names, replica by replica. "
        "{} After the passes replicas exchange gradients ({}) and parameters ({}), {} a step in "
        "all, which takes {}. Depths stay as planned while the run trains.",
        replicas_, stages_,
        static_cast<double>(request_.spec.TokensPerStep()) / prediction.step_seconds, slowest,
        plan->explanation, replicas::ToString(request_.spec.replicas.gradients),
        replicas::ToString(request_.spec.replicas.parameters),
        FormatBytes(static_cast<double>(bytes) / apart),
        longhaul::FormatDuration(absl::Seconds(exchange)));
  }

  const PlanRequest& request_;
  const std::stop_token& stop_;
  const uint32_t replicas_, stages_;
};

}  // namespace

StatusOr<Plan> MakePlanOfReplicas(const PlanRequest& request, const std::stop_token& stop) {
  return ReplicasPlanner(request, stop).Make();
}

StatusOr<replicas::Layout> LayoutOf(const RunSpec& spec, uint32_t vocabulary, const Cell& cell) {
  const auto parameters = model::ParametersOf(spec.model, spec.model.VocabularyOver(vocabulary),
                                              {.first_layer = cell.layers.first,
                                               .layers = cell.layers.count,
                                               .embedding = cell.roles.embedding,
                                               .head = cell.roles.head});
  return replicas::Layout::Make(
      replicas::ReplicatedParameters(parameters, spec.train.optimizer.kind == OptimizerKind::kMuon),
      {.replicas = spec.replicas.count,
       .gradients = spec.replicas.gradients,
       .parameters = spec.replicas.parameters});
}

uint32_t ReplicasOf(const Assignment& assignment) {
  uint32_t replicas = 0;
  for (const Cell& cell : assignment.cells) replicas = std::max(replicas, cell.id.replica + 1);
  return replicas;
}

double ExchangeSeconds(const Plan& plan) {
  const Assignment& assignment = plan.assignment;
  const NetworkRates network = NetworkOf(plan);
  std::vector<double> sent(assignment.cells.size()), received(assignment.cells.size());
  double alone = 0, latency = 0;
  for (size_t e = 0; e < assignment.edges.size(); ++e) {
    const Edge& edge = assignment.edges[e];
    if (edge.kind != EdgeKind::kReplicas) continue;
    const size_t from = assignment.PlaceOf(edge.from), to = assignment.PlaceOf(edge.to);
    const auto forward = static_cast<double>(WithChunkHeaders(edge.forward.bytes));
    const auto backward = static_cast<double>(WithChunkHeaders(edge.backward.bytes));
    sent[from] += forward;
    received[to] += forward;
    sent[to] += backward;
    received[from] += backward;
    alone =
        std::max({alone, forward / AloneBytesPerSecond(network, assignment, e, Direction::kForward),
                  backward / AloneBytesPerSecond(network, assignment, e, Direction::kBackward)});
    latency = std::max({latency, edge.forward.latency_seconds, edge.backward.latency_seconds});
  }
  double shared = 0;
  for (size_t c = 0; c < sent.size(); ++c) {
    shared = std::max({shared, sent[c] / network.interfaces[c].egress_bytes_per_second,
                       received[c] / network.interfaces[c].ingress_bytes_per_second});
  }
  // Gradients, the norm there and back, parameters: each waits for the one before.
  constexpr double kMessagesInARow = 4;
  return std::max(alone, shared) + kMessagesInARow * latency;
}

}  // namespace longhaul::coordinator
