#include "coordinator/state/planning/worker_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "coordinator/state/books/shard_files.h"
#include "coordinator/state/ledger/manifests.h"
#include "coordinator/state/ledger/within_reach.h"
#include "coordinator/state/planning/pipeline_order.h"
#include "coordinator/state/text.h"
#include "planner/place_workers.h"
#include "run/plan/proto/plan_proto.h"

namespace longhaul::coordinator {

namespace {

// Links among more are not measured in a reasonable time.
constexpr size_t kMostCandidates = 64;

}  // namespace

StatusOr<Candidates> WorkerChoice::ForAsManyAs(const RunRecord& record, uint64_t step,
                                               uint32_t* replicas) const {
  uint32_t least = *replicas;
  const v1::CheckpointManifest* manifest = FindCheckpoint(record, step);
  const bool goes_on = record.attempts.in_a_row > 0 && record.started_unix_ms != 0;
  if (goes_on && record.spec.recovery.replicas == LostReplica::kContinue) {
    least = 1;
  } else if (goes_on && manifest != nullptr) {
    least = std::min(least, ReplicasOf(*manifest));
  }
  if (record.spec.replicas.count_auto) return For(record.spec, record, step);
  const uint32_t wanted = *replicas;
  StatusOr<Candidates> of_all = For(record.spec.WithReplicas(wanted), record, step);
  if (of_all.ok()) return of_all;
  while (--*replicas >= std::max(least, 1U)) {
    StatusOr<Candidates> found = For(record.spec.WithReplicas(*replicas), record, step);
    if (found.ok()) return found;
  }
  return of_all;
}

StatusOr<Candidates> WorkerChoice::For(const RunSpec& spec, const RunRecord& record,
                                       uint64_t resume_step) const {
  const v1::CheckpointManifest* manifest = FindCheckpoint(record, resume_step);
  return manifest == nullptr ? Any(spec) : ForResume(spec, record, *manifest);
}

std::vector<Worker*> WorkerChoice::FreeFor(const RunSpec& spec) const {
  std::vector<Worker*> free;
  for (Worker* worker : ledger_.connected()) {
    if (health_.MayTake(*worker)) free.push_back(worker);
  }
  const auto lacking = std::stable_partition(free.begin(), free.end(), [&](const Worker* worker) {
    return links_.HasDevicesFor(spec, *worker);
  });
  if (!spec.pipeline.stages && lacking != free.begin()) free.erase(lacking, free.end());
  return free;
}

StatusOr<Candidates> WorkerChoice::Any(const RunSpec& spec) const {
  std::vector<Worker*> free = FreeFor(spec);
  // Spares are set apart where the number of stages or replicas is left to the plan. No run waits
  // for spares.
  const bool is_fixed = spec.pipeline.stages && !spec.replicas.count_auto;
  const size_t least = spec.pipeline.stages.value_or(1);
  const size_t apart = is_fixed || free.size() <= least
                           ? 0
                           : std::min<size_t>(spec.recovery.spares, free.size() - least);
  const std::optional<uint32_t> stages =
      StageCount(spec, static_cast<uint32_t>(free.size() - apart));
  if (!stages || *stages == 0) return absl::UnavailableError(ShortageSentence(spec));
  const uint32_t needed = *stages * spec.replicas.count;
  const bool by_name = spec.pipeline.placement == PlacementKind::kNames;
  if (!spec.replicas.count_auto && (by_name || free.size() == 1)) {
    free.resize(needed);
    return Candidates{std::move(free), std::nullopt};
  }
  // Where enough workers are of the better kind the others are not considered: one of them would
  // decide what type the run computes in, and whether a stage may have its ranks.
  const auto keep = [&](const auto& is_good) {
    const auto rest = std::stable_partition(free.begin(), free.end(), is_good);
    if (static_cast<size_t>(rest - free.begin()) >= needed) {
      free.erase(rest, free.end());
    } else {
      std::ranges::sort(free, NameLess());
    }
  };
  if (!by_name) {
    keep([&](const Worker* worker) { return links_.HasDevicesFor(spec, *worker); });
    keep([&](const Worker* worker) { return links_.CandidateOf(spec, *worker).on_gpu; });
  }
  if (free.size() > kMostCandidates) free.resize(std::max<size_t>(kMostCandidates, needed));
  if (spec.replicas.count_auto) {  // as many as the plan likes
    const size_t most = free.size() > apart ? free.size() - apart : 0;
    return Candidates{std::move(free), std::max(needed, static_cast<uint32_t>(most))};
  }
  return Candidates{std::move(free), needed};
}

// Every shard must be within reach. Workers that hold some come first, in their old places where
// there are as many stages as before.
StatusOr<Candidates> WorkerChoice::ForResume(const RunSpec& spec, const RunRecord& record,
                                             const v1::CheckpointManifest& manifest) const {
  if (const v1::CheckpointFile* file = UnreachableFile(ledger_, manifest)) {
    std::string sentence = fmt::format(
        "waits for {}, which is not connected: it holds stage {} of the "
        "checkpoint of step {}",
        HoldersText(*file), file->stage(), manifest.step());
    const v1::CheckpointManifest* older = NewestWhole(record, manifest.step());
    if (older != nullptr && UnreachableFile(ledger_, *older) == nullptr) {
      sentence += fmt::format(
          "; to do without it, longhaul stop {} and longhaul submit run.yaml "
          "--resume --from-step {}",
          record.id.value(), older->step());
    }
    return absl::UnavailableError(sentence);
  }
  std::vector<Worker*> free = FreeFor(spec);
  const auto before = static_cast<uint32_t>(std::ranges::count_if(
      manifest.cells(), [](const v1::Cell& cell) { return cell.id().replica() == 0; }));
  const auto available = static_cast<uint32_t>(free.size());
  const uint32_t replicas = spec.replicas.count;
  const std::optional<uint32_t> stages = !spec.pipeline.stages && before * replicas <= available
                                             ? std::optional(before)
                                             : StageCount(spec, available);
  if (!stages || *stages == 0) return absl::UnavailableError(ShortageSentence(spec));
  std::vector<Worker*> chosen(size_t{*stages} * replicas, nullptr);
  const bool same_shape =
      *stages == before && static_cast<size_t>(manifest.cells_size()) == chosen.size();
  size_t next = 0;
  for (const v1::Cell& cell : manifest.cells()) {
    const auto holder = std::find_if(free.begin(), free.end(), [&](const Worker* worker) {
      return worker->id.value() == cell.worker_id();
    });
    const size_t place = same_shape ? chain::PlaceOf(FromProto(cell.id()), *stages) : next;
    if (holder == free.end() || place >= chosen.size()) continue;
    chosen[place] = *holder;
    free.erase(holder);
    ++next;
  }
  for (Worker*& worker : chosen) {
    if (worker != nullptr) continue;
    worker = free.front();
    free.erase(free.begin());
  }
  return Candidates{std::move(chosen), std::nullopt};
}

std::string WorkerChoice::ShortageSentence(const RunSpec& spec) const {
  std::vector<std::string> names;
  size_t busy = 0;
  for (const Worker* worker : ledger_.connected()) {
    if (worker->held) ++busy;
    names.push_back(worker->held ? fmt::format("{} (busy with {})", ledger_.Label(*worker),
                                               worker->held->value())
                                 : ledger_.Label(*worker) + health_.LeftOutText(worker->id));
  }
  const uint32_t needed = spec.pipeline.stages.value_or(1) * spec.replicas.count;
  return fmt::format("needs {} {}{}, {} connected{}{}", needed, busy > 0 ? "free " : "",
                     needed == 1 ? "worker" : "workers", names.size(), names.empty() ? "" : ": ",
                     Join(names));
}

Status WorkerChoice::CheckNeighbours(const RunSpec& spec,
                                     const std::vector<Worker*>& workers) const {
  for (const Edge& edge : EdgesFor(spec, workers)) {
    LH_RETURN_IF_ERROR(EndsOf(spec, links_.CandidateOf(spec, WorkerAt(spec, workers, edge.from)),
                              links_.CandidateOf(spec, WorkerAt(spec, workers, edge.to)), edge.kind)
                           .status());
  }
  return absl::OkStatus();
}

Status WorkerChoice::CheckLinks(const RunSpec& spec, const StatusOr<Candidates>& candidates,
                                bool may_wait) const {
  if (!candidates.ok()) return absl::OkStatus();  // it waits; the plan will be checked then
  std::vector<Worker*> workers = candidates->workers;
  std::vector<CandidateWorker> all;
  for (const Worker* worker : workers) all.push_back(links_.CandidateOf(spec, *worker));
  LH_RETURN_IF_ERROR(CheckDevices(spec, all));
  // Where the number of replicas is open, one replica.
  const auto chain = static_cast<uint32_t>(spec.pipeline.stages.value_or(1));
  if (candidates->choose) {
    workers.resize(spec.replicas.count_auto ? chain : *candidates->choose);
  }
  for (const Edge& edge : EdgesFor(spec, workers)) {
    const Worker& upper = WorkerAt(spec, workers, edge.from);
    const Worker& lower = WorkerAt(spec, workers, edge.to);
    if (may_wait && links_.IsTrying(spec, upper, lower, edge.kind)) {
      return Unavailable("workers {} and {} are trying to reach each other", ledger_.Label(upper),
                         ledger_.Label(lower));
    }
  }
  Status by_name = CheckNeighbours(spec, workers);
  if (by_name.ok() || !candidates->choose) return by_name;
  const uint32_t stages =
      spec.replicas.count_auto ? chain : *candidates->choose / spec.replicas.count;
  return MayBePlaced(spec, all, stages) ? absl::OkStatus() : by_name;
}

}  // namespace longhaul::coordinator
