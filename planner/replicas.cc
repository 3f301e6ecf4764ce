#include "planner/replicas.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/units.h"
#include "planner/codec_choice.h"
#include "planner/explain.h"
#include "planner/links.h"
#include "planner/prediction.h"
#include "planner/sharing.h"
#include "run/model/family.h"
#include "run/plan/chain.h"
#include "transport/replicas/parameters.h"
#include "transport/replicas/traffic.h"

namespace longhaul::coordinator {
namespace {

void TakeLonger(const v1::GroupPass& other, v1::GroupPass* pass) {
  pass->set_forward(std::max(pass->forward(), other.forward()));
  pass->set_backward(std::max(pass->backward(), other.backward()));
}

// Both workers have timed a group of this kind; others stay as they are.
void TakeLonger(const v1::GroupTimes& other, v1::GroupTimes* times) {
  const auto parts = [](const v1::GroupTimes& of) { return std::max(of.expert(), 1u); };
  if (times->tensor() != other.tensor() || parts(*times) != parts(other)) return;
  TakeLonger(other.embedding(), times->mutable_embedding());
  TakeLonger(other.block(), times->mutable_block());
  TakeLonger(other.head(), times->mutable_head());
  if (times->has_ends()) TakeLonger(other.ends(), times->mutable_ends());
}

// Each time of `times` becomes that of `other`, where it is longer.
void TakeLonger(const v1::LayerTimes& other, v1::LayerTimes* times) {
  for (v1::GroupTimes& group : *times->mutable_groups()) {
    for (const v1::GroupTimes& of_other : other.groups()) TakeLonger(of_other, &group);
  }
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
      return InvalidArgument("expected as many workers for each of {} replicas, got {} workers",
                             replicas_, request_.workers.size());
    }
    LH_ASSIGN_OR_RETURN(const std::vector<uint32_t> layers, CommonSplit());
    std::vector<PlanRequest> requests;
    std::vector<Plan> plans;
    std::vector<std::vector<uint32_t>> most_depths;
    for (uint32_t replica = 0; replica < replicas_; ++replica) {
      PlanRequest& one = requests.emplace_back(RequestOf(replica));
      one.layers = layers;
      // The common split has kept that of the checkpoint where it could.
      if (one.resume) one.resume->cells.clear();
      one.placement.reset();  // what is said of it is said of all
      one.with_codec_table = request_.with_codec_table && replica == 0;
      auto begun = BeginPlan(one);
      if (!begun.ok()) return Annotate(begun.status(), fmt::format("replica {}", replica));
      plans.push_back(std::move(begun->plan));
      most_depths.push_back(std::move(begun->most_depths));
    }
    LH_RETURN_IF_ERROR(SlowDownSharedDevices(request_.spec, request_.workers, plans, stop_));
    LH_ASSIGN_OR_RETURN(const uint32_t slowest, SlowestOf(plans));
    const auto finish = [&](uint32_t replica, const Plan* slower) -> Status {
      auto plan =
          FinishPlan(requests[replica],
                     {std::move(plans[replica]), std::move(most_depths[replica])}, slower, stop_);
      if (!plan.ok()) return Annotate(plan.status(), fmt::format("replica {}", replica));
      plans[replica] = *std::move(plan);
      return absl::OkStatus();
    };
    LH_RETURN_IF_ERROR(finish(slowest, nullptr));
    for (uint32_t replica = 0; replica < replicas_; ++replica) {
      if (replica != slowest) LH_RETURN_IF_ERROR(finish(replica, &plans[slowest]));
    }
    return Join(std::move(plans));
  }

 private:
  // With all the depth that there is.
  StatusOr<uint32_t> SlowestOf(const std::vector<Plan>& plans) const {
    uint32_t slowest = 0;
    absl::Duration longest;
    for (uint32_t replica = 0; replica < replicas_; ++replica) {
      const Plan& plan = plans[replica];
      LH_ASSIGN_OR_RETURN(
          const schedule::Simulation simulation,
          schedule::Simulate(PipelineCostOf(plan, request_.spec, NetworkOf(plan)), stop_));
      if (simulation.step > longest) longest = simulation.step, slowest = replica;
    }
    return slowest;
  }

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
    one.spec.links.chosen.clear();
    const auto* chosen = request_.spec.links.ChosenOf(replica, chain::Boundaries(stages_));
    if (chosen != nullptr) one.spec.links.chosen.push_back(*chosen);
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
    LH_ASSIGN_OR_RETURN(const std::vector<replicas::Layout> layouts,
                        LayoutsOf(spec, plan->assignment));
    for (Edge& edge : plan->assignment.edges) {
      if (edge.kind != EdgeKind::kReplicas) continue;
      const replicas::Layout& layout = layouts[edge.from.stage];
      const CandidateWorker& from = WorkersOf(edge.from.replica)[edge.from.stage];
      const CandidateWorker& to = WorkersOf(edge.to.replica)[edge.to.stage];
      LH_ASSIGN_OR_RETURN(LinkEnds ends, EndsOf(spec, from, to, edge.kind));
      SetEnds(std::move(ends), &edge);
      const CodecSpec codec(replicas::ToString(spec.replicas.gradients));
      edge.forward = {.codec = codec,
                      .bytes = UsualTraffic(layout, edge.from.replica, edge.to.replica).total()};
      edge.backward = {.codec = codec,
                       .bytes = UsualTraffic(layout, edge.to.replica, edge.from.replica).total()};
    }
    SealIfRelayed(&plan->assignment);
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
    assignment.run_yaml = RunYamlOf(request_.spec, assignment);
    SetNetwork(NetworkFor(request_, assignment), &plan);
    LH_ASSIGN_OR_RETURN(const ReplicasStep step, PredictReplicas(plan, request_.spec, stop_));
    AddStep(step, &plan);
    plan.explanation = Explanation(step, plan);
    return plan;
  }

  void AddStep(const ReplicasStep& step, Plan* plan) const {
    // Copies of states are taken where replicas are alike.
    const uint32_t apart = request_.spec.replicas.steps_apart();
    uint64_t& copy_every = plan->assignment.copy_every;
    copy_every = (copy_every + apart - 1) / apart * apart;
    Prediction& prediction = plan->prediction;
    step.Set(&prediction);
    for (CodecPrediction& row : prediction.codecs) {
      row.step_seconds += step.exchange_seconds;
      row.tokens_per_second = static_cast<double>(request_.spec.TokensPerStep()) / row.step_seconds;
    }
  }

  std::string Explanation(const ReplicasStep& step, const Plan& plan) const {
    const RunSpec& spec = request_.spec;
    std::string who, layers;
    for (const Cell& cell : plan.assignment.cells) {
      const bool is_first = cell.id.stage == 0;
      who += is_first ? fmt::format("{}replica {} is {}", cell.id.replica == 0 ? "" : "; ",
                                    cell.id.replica, cell.worker_name)
                      : ", " + cell.worker_name;
      if (cell.id.replica > 0) continue;
      layers += fmt::format("{}{}", is_first ? "" : ", ", cell.layers.count);
    }
    uint64_t bytes = 0;
    for (const Edge& edge : plan.assignment.edges) {
      if (edge.kind == EdgeKind::kReplicas) bytes += edge.forward.bytes + edge.backward.bytes;
    }
    const uint32_t ranks = spec.group.tensor;
    std::string text = fmt::format(
        "{} replicas of {} stage{}{} train together: {}. Layers by stage: {}.{} A step of {} "
        "microbatches in each ({} tokens in all) should take {} ({:.0f} tokens/s): {} for the "
        "passes of replica {}, the slowest, and {} more because replicas exchange gradients ({}) "
        "and parameters ({}), {} a step in all.",
        replicas_, stages_, stages_ == 1 ? "" : "s",
        ranks == 1 ? "" : fmt::format(" of {} ranks", ranks), who, layers,
        PlacedText(request_, plan), spec.train.microbatches, spec.TokensPerStep(),
        FormatSeconds(step.step_seconds),
        static_cast<double>(spec.TokensPerStep()) / step.step_seconds,
        FormatSeconds(step.passes_seconds), step.slowest, FormatSeconds(step.exchange_seconds),
        replicas::ToString(spec.replicas.gradients), replicas::ToString(spec.replicas.parameters),
        FormatBytes(static_cast<double>(bytes) / spec.replicas.steps_apart()));
    text += fmt::format(
        " No schedule could be below {}, and what sets that bound is the {}; for {} of it the {} "
        "is at work{}.",
        FormatSeconds(step.lower_bound_seconds), step.bottleneck, FormatSeconds(step.floor_seconds),
        step.busiest,
        step.busiest_bytes == 0 ? ""
                                : fmt::format(" and carries {}", FormatBytes(step.busiest_bytes)));
    text += SharedText(spec, request_.workers);
    // What the slowest replica's plan says beside that.
    return text + fmt::format(" Of replica {}:{}", step.slowest, plan.explanation);
  }

  const PlanRequest& request_;
  const std::stop_token& stop_;
  const uint32_t replicas_, stages_;
};

}  // namespace

StatusOr<Plan> MakePlanOfReplicas(const PlanRequest& request, const std::stop_token& stop) {
  return ReplicasPlanner(request, stop).Make();
}

std::vector<model::PlacedParameter> ParametersOf(const RunSpec& spec, uint32_t vocabulary,
                                                 const LayerRange& layers, const Roles& roles) {
  return model::ParametersOf(spec.model, spec.model.VocabularyOver(vocabulary),
                             {.first_layer = layers.first,
                              .layers = layers.count,
                              .embedding = roles.embedding,
                              .head = roles.head});
}

StatusOr<replicas::Layout> LayoutOf(const RunSpec& spec, uint32_t vocabulary,
                                    const LayerRange& layers, const Roles& roles) {
  return replicas::Layout::Make(
      replicas::ReplicatedParameters(ParametersOf(spec, vocabulary, layers, roles),
                                     spec.train.optimizer.kind == OptimizerKind::kMuon),
      {.replicas = spec.replicas.count,
       .gradients = spec.replicas.gradients,
       .parameters = spec.replicas.parameters});
}

StatusOr<std::vector<replicas::Layout>> LayoutsOf(const RunSpec& spec,
                                                  const Assignment& assignment) {
  std::vector<replicas::Layout> layouts;
  for (const Cell& cell : assignment.cells) {
    if (cell.id.replica > 0) continue;
    LH_ASSIGN_OR_RETURN(replicas::Layout layout,
                        LayoutOf(spec, assignment.data.vocabulary, cell.layers, cell.roles));
    layouts.push_back(std::move(layout));
  }
  return layouts;
}

Plan ReplicaOf(const Plan& plan, uint32_t replica) {
  Plan one;
  one.assignment.slices = plan.assignment.slices;
  one.assignment.data = plan.assignment.data;
  for (size_t c = 0; c < plan.assignment.cells.size(); ++c) {
    if (plan.assignment.cells[c].id.replica != replica) continue;
    one.assignment.cells.push_back(plan.assignment.cells[c]);
    one.cells.push_back(plan.cells[c]);
  }
  for (size_t e = 0; e < plan.assignment.edges.size(); ++e) {
    const Edge& edge = plan.assignment.edges[e];
    if (edge.kind == EdgeKind::kReplicas || edge.from.replica != replica) continue;
    one.assignment.edges.push_back(edge);
    one.edges.push_back(plan.edges[e]);
  }
  return one;
}

uint32_t ReplicasOf(const Assignment& assignment) {
  uint32_t replicas = 0;
  for (const Cell& cell : assignment.cells) replicas = std::max(replicas, cell.id.replica + 1);
  return replicas;
}

StatusOr<uint64_t> ExchangeBytes(const RunSpec& spec, uint32_t vocabulary, const LayerRange& layers,
                                 const Roles& roles) {
  LH_ASSIGN_OR_RETURN(const replicas::Layout layout, LayoutOf(spec, vocabulary, layers, roles));
  return LargestUsualTraffic(layout);
}

}  // namespace longhaul::coordinator
