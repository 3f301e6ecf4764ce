#include "planner/resize.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "absl/time/time.h"
#include "base/check.h"
#include "base/units.h"
#include "planner/codec_choice.h"
#include "planner/links.h"
#include "planner/memory.h"
#include "planner/replicas.h"
#include "run/plan/chain.h"
#include "transport/replicas/traffic.h"

namespace longhaul::coordinator {
namespace {

class Resizer {
 public:
  Resizer(const Plan& before, const RunSpec& spec, const std::vector<CandidateWorker>& members)
      : before_(before),
        spec_(spec),
        members_(members),
        stages_(StagesOfReplica(before.assignment)) {
    LH_CHECK(members.size() == size_t{spec.replicas.count} * stages_,
             "{} workers for {} replicas of {} stages", members.size(), spec.replicas.count,
             stages_);
    request_.spec = spec;
    request_.data = before.assignment.data;
    for (size_t e = 0; e < before.assignment.edges.size(); ++e) {
      const Edge& edge = before.assignment.edges[e];
      edges_[{WorkerOf(edge.from), WorkerOf(edge.to), edge.kind}] = e;
    }
  }

  StatusOr<Plan> Make() const {
    Plan plan = before_;
    Assignment& assignment = plan.assignment;
    assignment.cells.clear();
    plan.cells.clear();
    plan.prediction.cells.clear();
    for (size_t place = 0; place < members_.size(); ++place) AddCell(place, &plan);
    assignment.sealed |= SealsLinks(spec_, assignment.cells);
    assignment.edges =
        chain::MakeEdges(spec_.replicas.count, stages_, spec_.model.TrainsTiedMatrix());
    plan.edges.assign(assignment.edges.size(), {});
    plan.prediction.edges.assign(assignment.edges.size(), {});
    for (size_t e = 0; e < assignment.edges.size(); ++e) LH_RETURN_IF_ERROR(FillEdge(e, &plan));
    // Flows of chosen codecs are copied with their tokens.
    if (!spec_.links.HasAutoCodecs()) AddCarriedTokens(request_, &assignment);
    SealIfRelayed(&assignment);
    assignment.run_yaml = RunYamlOf(spec_, assignment);
    LH_ASSIGN_OR_RETURN(const ReplicasStep step, PredictReplicas(plan, spec_));
    step.Set(&plan.prediction);
    plan.prediction.codecs.clear();
    plan.explanation = Explanation(plan);
    return plan;
  }

 private:
  using Pair = std::tuple<std::string, std::string, EdgeKind>;

  std::string WorkerOf(const CellId& id) const {
    return before_.assignment.Find(id)->worker.value();
  }
  const CandidateWorker& MemberAt(const CellId& id) const {
    return members_[chain::PlaceOf(id, stages_)];
  }

  // The old plan's cell of the same stage whose estimates apply: the worker's own one, else replica
  // 0's.
  size_t ModelOf(size_t place) const {
    const auto stage = static_cast<uint32_t>(place % stages_);
    for (const Cell& cell : before_.assignment.cells) {
      if (cell.id.stage == stage && cell.worker == members_[place].id) {
        return before_.assignment.PlaceOf(cell.id);
      }
    }
    return before_.assignment.PlaceOf({.replica = 0, .stage = stage});
  }

  // Likewise of a boundary.
  size_t ModelOf(const Edge& edge) const {
    const auto known = edges_.find(
        {MemberAt(edge.from).id.value(), MemberAt(edge.to).id.value(), EdgeKind::kActivations});
    if (known != edges_.end()) return known->second;
    const std::vector<Edge>& edges = before_.assignment.edges;
    const auto first = std::ranges::find_if(edges, [&edge](const Edge& one) {
      return one.kind == EdgeKind::kActivations && one.from.stage == edge.from.stage;
    });
    return static_cast<size_t>(first - edges.begin());
  }

  void AddCell(size_t place, Plan* plan) const {
    const CandidateWorker& member = members_[place];
    const size_t model = ModelOf(place);
    Cell& cell = plan->assignment.cells.emplace_back(before_.assignment.cells[model]);
    cell.id = {.replica = static_cast<uint32_t>(place / stages_),
               .stage = static_cast<uint32_t>(place % stages_)};
    cell.worker = member.id;
    cell.incarnation = member.incarnation;
    cell.worker_name = member.name;
    cell.endpoints = member.endpoints;
    const size_t devices = std::min(cell.devices.size(), member.devices.size());
    std::copy_n(member.devices.begin(), devices, cell.devices.begin());
    cell.memory_bytes =
        MemoryOfCell(spec_, before_.assignment, cell.id.stage, member.on_gpu).device;
    plan->cells.push_back(before_.cells[model]);
    plan->cells.back().memory_available_bytes = member.memory_bytes;
    const auto& predicted = before_.prediction.cells;
    plan->prediction.cells.push_back(model < predicted.size() ? predicted[model] : PredictedCell());
  }

  Status FillEdge(size_t e, Plan* plan) const {
    Edge& edge = plan->assignment.edges[e];
    const CandidateWorker &from = MemberAt(edge.from), &to = MemberAt(edge.to);
    LH_ASSIGN_OR_RETURN(LinkEnds ends, EndsOf(spec_, from, to, edge.kind));
    SetEnds(std::move(ends), &edge);
    LH_RETURN_IF_ERROR(FillFlows(plan->assignment, &edge));
    const auto known = edges_.find({from.id.value(), to.id.value(), edge.kind});
    if (known == edges_.end()) return absl::OkStatus();
    const Edge& was = before_.assignment.edges[known->second];
    for (const auto& [flow, old] :
         {std::pair(&edge.forward, &was.forward), std::pair(&edge.backward, &was.backward)}) {
      flow->bits_per_second = old->bits_per_second;
      flow->latency_seconds = old->latency_seconds;
    }
    if (known->second < before_.edges.size()) plan->edges[e] = before_.edges[known->second];
    const auto& predicted = before_.prediction.edges;
    if (known->second < predicted.size()) {
      plan->prediction.edges[e] = predicted[known->second];
    }
    return absl::OkStatus();
  }

  Status FillFlows(const Assignment& assignment, Edge* edge) const {
    if (edge->kind == EdgeKind::kTied) {
      edge->forward = TiedFlow(request_, Direction::kForward);
      edge->backward = TiedFlow(request_, Direction::kBackward);
    } else if (edge->kind == EdgeKind::kReplicas) {
      const Cell& cell = *assignment.Find(edge->from);
      LH_ASSIGN_OR_RETURN(const replicas::Layout layout,
                          LayoutOf(spec_, assignment.data.vocabulary, cell.layers, cell.roles));
      const CodecSpec codec(replicas::ToString(spec_.replicas.gradients));
      edge->forward = {.codec = codec,
                       .bytes = UsualTraffic(layout, edge->from.replica, edge->to.replica).total()};
      edge->backward = {
          .codec = codec,
          .bytes = UsualTraffic(layout, edge->to.replica, edge->from.replica).total()};
    } else if (spec_.links.HasAutoCodecs()) {
      // As they were chosen: between the same workers, else at the same boundary.
      const Edge& was = before_.assignment.edges[ModelOf(*edge)];
      edge->forward = {.codec = was.forward.codec, .bytes = was.forward.bytes};
      edge->backward = {.codec = was.backward.codec, .bytes = was.backward.bytes};
    } else {
      LH_ASSIGN_OR_RETURN(edge->forward,
                          FlowFrom(request_, MemberAt(edge->from), Direction::kForward));
      LH_ASSIGN_OR_RETURN(edge->backward,
                          FlowFrom(request_, MemberAt(edge->to), Direction::kBackward));
    }
    return absl::OkStatus();
  }

  std::string Explanation(const Plan& plan) const {
    const uint32_t replicas = spec_.replicas.count;
    return fmt::format(
        "{} of {} stages, made of the plan for {}: layers, depths and times are those of that "
        "plan. A step reads {} microbatches.{}",
        replicas == 1 ? "1 replica" : fmt::format("{} replicas", replicas), stages_,
        ReplicasOf(before_.assignment), spec_.MicrobatchesPerStep(),
        replicas == 1 ? std::string()
                      : fmt::format(" Replicas exchange gradients ({}) and parameters ({}), which "
                                    "makes a step longer by {}.",
                                    replicas::ToString(spec_.replicas.gradients),
                                    replicas::ToString(spec_.replicas.parameters),
                                    FormatSeconds(plan.prediction.exchange_seconds)));
  }

  const Plan& before_;
  const RunSpec& spec_;
  const std::vector<CandidateWorker>& members_;
  const uint32_t stages_;
  PlanRequest request_;           // no more of it than flows need
  std::map<Pair, size_t> edges_;  // of the plan before, by their ends' workers
};

}  // namespace

uint32_t StagesOfReplica(const Assignment& assignment) {
  return static_cast<uint32_t>(
      std::ranges::count(assignment.cells, 0U, [](const Cell& cell) { return cell.id.replica; }));
}

CellMemory MemoryOfCell(const RunSpec& spec, const Assignment& assignment, uint32_t stage,
                        bool on_gpu) {
  const Cell& cell = *assignment.Find({.replica = 0, .stage = stage});
  const StageMemory memory = MemoryOf(spec, assignment.data.vocabulary, cell.layers.count,
                                      cell.roles.embedding, cell.roles.head, on_gpu);
  return {.device = memory.At(cell.setting.depth), .host = memory.host};
}

StatusOr<Plan> ResizePlan(const Plan& plan, const RunSpec& spec,
                          const std::vector<CandidateWorker>& members) {
  return Resizer(plan, spec, members).Make();
}

}  // namespace longhaul::coordinator
