#include "coordinator/state/recovery/crews.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "planner/links.h"
#include "planner/replicas.h"
#include "planner/resize.h"
#include "run/plan/chain.h"
#include "run/plan/proto/plan_proto.h"

namespace longhaul::coordinator {

namespace {

bool Holds(uint64_t available, uint64_t needed) {
  return available == 0 || needed <= available;  // 0: unknown
}

void TakeMeasured(const LinkRecord* link, Flow* flow) {
  flow->bits_per_second = link == nullptr ? 0 : link->bits_per_second;
  flow->latency_seconds = link == nullptr ? 0 : absl::ToDoubleSeconds(link->round_trip) / 2;
}

}  // namespace

uint32_t Crews::LeastReplicas(const Run& run) const {
  if (run.record.spec.recovery.replicas == LostReplica::kContinue) return 1;
  return std::min(run.record.ReplicasWanted(), ReplicasOf(run.assignment()));
}

// The replicas that train keep their places; a wish for fewer takes the last ones.
Crew Crews::For(Run& run) {
  const uint32_t stages = StagesOfReplica(run.assignment());
  const uint32_t wanted = run.record.ReplicasWanted(), least = LeastReplicas(run);
  Crew crew;
  for (const StageRecord& stage : run.stages) {
    Worker* worker = ledger_.FindWorker(stage.worker);
    const bool free = worker != nullptr && health_.MayTake(*worker, &run.record.id);
    if (free) worker->held = run.record.id;
    crew.push_back(free ? worker : nullptr);
  }
  crew.resize(std::min<size_t>(crew.size(), size_t{wanted} * stages));
  Fill(run, &crew);
  while (!IsWhole(crew) && crew.size() > size_t{least} * stages) {
    DropLeastWhole(stages, &crew);
    Fill(run, &crew);
  }
  while (IsWhole(crew) && crew.size() < size_t{wanted} * stages) {
    Crew more = crew;
    more.resize(crew.size() + stages, nullptr);
    Fill(run, &more);
    if (!IsWhole(more)) break;
    crew = std::move(more);
  }
  return crew;
}

void Crews::DropLeastWhole(uint32_t stages, Crew* crew) {
  size_t worst = 0;
  std::ptrdiff_t most = -1;
  for (size_t first = 0; first < crew->size(); first += stages) {
    const auto begin = crew->begin() + static_cast<std::ptrdiff_t>(first);
    const std::ptrdiff_t missing = std::count(begin, begin + stages, nullptr);
    if (missing < most) continue;  // of equals the last one goes
    most = missing;
    worst = first;
  }
  const auto begin = crew->begin() + static_cast<std::ptrdiff_t>(worst);
  crew->erase(begin, begin + stages);
}

void Crews::Fill(const Run& run, Crew* crew) {
  const uint32_t stages = StagesOfReplica(run.assignment());
  const auto at = [&](size_t place) {
    return CellId{.replica = static_cast<uint32_t>(place / stages),
                  .stage = static_cast<uint32_t>(place % stages)};
  };
  for (size_t place = 0; place < crew->size(); ++place) {
    Worker*& worker = (*crew)[place];
    if (worker != nullptr && !HasMemory(run, at(place), *worker, *crew)) worker = nullptr;
  }
  for (size_t place = 0; place < crew->size(); ++place) {
    if ((*crew)[place] != nullptr) continue;
    Worker* worker = ReplacementFor(run, at(place), *crew);
    if (worker != nullptr) (*crew)[place] = worker;
  }
}

Worker* Crews::ReplacementFor(const Run& run, const CellId& id, const Crew& crew) {
  const auto takes = [&](const Worker& worker) {
    return std::ranges::find(crew, &worker) == crew.end() && CanTake(run, id, worker, crew);
  };
  for (const Worker* one : ledger_.connected()) {
    if (one->held == run.record.id && health_.MayTake(*one, &run.record.id) && takes(*one)) {
      return ledger_.FindWorker(one->id);
    }
  }
  const StageRecord* before = run.Find(id);
  const bool waits = run.record.state == RunState::kRecovering && before != nullptr &&
                     run.record.spec.recovery.replicas == LostReplica::kExact &&
                     health_.LeftOutText(before->worker).empty() &&
                     ledger_.now() < failures_.PauseOf(run).since + kReturnPatience;
  if (waits) return nullptr;
  for (const Worker* one : ledger_.connected()) {
    if (health_.MayTake(*one) && takes(*one)) return ledger_.FindWorker(one->id);
  }
  return nullptr;
}

// With fewer replicas each has a larger part of the optimizer's state.
bool Crews::HasMemory(const Run& run, const CellId& id, const Worker& worker,
                      const Crew& crew) const {
  const Assignment& assignment = run.assignment();
  const auto replicas = static_cast<uint32_t>(crew.size() / StagesOfReplica(assignment));
  const CandidateWorker candidate = links_.CandidateOf(run.record.spec, worker);
  const CellMemory needs =
      MemoryOfCell(run.record.spec.WithReplicas(replicas), assignment, id.stage, candidate.on_gpu);
  // The plan has found that the cell fits.
  const Cell* cell = assignment.Find(id);
  const bool as_planned = cell != nullptr && replicas == ReplicasOf(assignment);
  return Holds(candidate.memory_bytes, as_planned ? cell->memory_bytes : needs.device) &&
         Holds(candidate.host_memory_bytes, needs.host);
}

// Whether the worker's device is of the same kind and large enough, and the neighbours are within
// reach.
bool Crews::CanTake(const Run& run, const CellId& id, const Worker& worker,
                    const Crew& crew) const {
  const Assignment& assignment = run.assignment();
  const Cell* cell = assignment.Find(id);
  if (cell == nullptr) cell = assignment.Find({.replica = 0, .stage = id.stage});
  const CandidateWorker candidate = links_.CandidateOf(run.record.spec, worker);
  if (worker.hello.devices().empty() || candidate.devices.size() < cell->group.tensor ||
      !HasMemory(run, id, worker, crew)) {
    return false;
  }
  const Worker* before = ledger_.FindWorker(cell->worker);
  if (before != nullptr && !before->hello.devices().empty() &&
      before->hello.devices(0).kind() != worker.hello.devices(0).kind()) {
    return false;
  }
  const uint32_t stages = StagesOfReplica(assignment);
  const std::vector<Edge> edges =
      chain::MakeEdges(static_cast<uint32_t>(crew.size() / stages), stages,
                       run.record.spec.model.TrainsTiedMatrix());
  return std::ranges::all_of(edges, [&](const Edge& edge) {
    if (edge.from != id && edge.to != id) return true;
    const Worker* peer = crew[chain::PlaceOf(edge.PeerOf(id), stages)];
    if (peer == nullptr) return true;  // seen to when its place is taken
    return edge.from == id ? links_.PathBetween(run, worker, *peer, edge.kind).ok()
                           : links_.PathBetween(run, *peer, worker, edge.kind).ok();
  });
}

StatusOr<Plan> Crews::PlanWith(const Run& run, const Crew& crew) const {
  Plan plan = *run.record.plan;
  if (crew.size() == plan.assignment.cells.size()) {
    plan.assignment = WithCrew(run, crew);
    return plan;
  }
  const auto replicas = static_cast<uint32_t>(crew.size() / StagesOfReplica(run.assignment()));
  std::vector<CandidateWorker> members;
  for (const Worker* worker : crew) members.push_back(links_.CandidateOf(run.record.spec, *worker));
  LH_ASSIGN_OR_RETURN(
      plan, ResizePlan(*run.record.plan, run.record.spec.WithReplicas(replicas), members));
  for (Edge& edge : plan.assignment.edges) {
    const WorkerId& from = plan.assignment.Find(edge.from)->worker;
    const WorkerId& to = plan.assignment.Find(edge.to)->worker;
    if (edge.forward.bits_per_second == 0)
      TakeMeasured(links_.measured().Find(from, to), &edge.forward);
    if (edge.backward.bits_per_second == 0)
      TakeMeasured(links_.measured().Find(to, from), &edge.backward);
  }
  return plan;
}

Assignment Crews::WithCrew(const Run& run, const Crew& crew) const {
  Assignment assignment = run.assignment();
  std::set<CellId> replaced;
  for (size_t place = 0; place < crew.size(); ++place) {
    Cell& cell = assignment.cells[place];
    const Worker& worker = *crew[place];
    if (cell.worker != worker.id) replaced.insert(cell.id);
    cell.worker = worker.id;
    cell.incarnation = worker.incarnation;
    cell.worker_name = worker.hello.name();
    cell.endpoints = FromProto(worker.hello.endpoints());
    const std::vector<uint32_t> devices = links_.CandidateOf(run.record.spec, worker).devices;
    if (devices.size() >= cell.devices.size()) {
      cell.devices.assign(devices.begin(),
                          devices.begin() + static_cast<long>(cell.devices.size()));
    }
  }
  assignment.sealed |= SealsLinks(run.record.spec, assignment.cells);
  for (Edge& edge : assignment.edges) {
    if (!replaced.contains(edge.from) && !replaced.contains(edge.to) &&
        !links_.HasLostItsRelays(edge)) {
      continue;
    }
    StatusOr<LinkEnds> ends = links_.PathBetween(run, *crew[assignment.PlaceOf(edge.from)],
                                                 *crew[assignment.PlaceOf(edge.to)], edge.kind);
    if (!ends.ok()) continue;  // CanTake has seen that there is a way, or relays may come back
    SetEnds(*std::move(ends), &edge);
    const WorkerId& from = assignment.Find(edge.from)->worker;
    const WorkerId& to = assignment.Find(edge.to)->worker;
    TakeMeasured(links_.measured().Find(from, to), &edge.forward);
    TakeMeasured(links_.measured().Find(to, from), &edge.backward);
  }
  SealIfRelayed(&assignment);
  return assignment;
}

}  // namespace longhaul::coordinator
