// A run goes on by itself after a loss: a worker that died, a link that could not be made again, an
// error of a stage. The first time in place: the next epoch of the same assignment, from the newest
// whole checkpoint, as soon as every cell has its worker again, or a new process of it; those who
// were not hurt keep their models. Where that was in vain, or a worker stays away, it is planned
// anew with whoever is there. It ends when it was tried too often without finishing a new step.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "coordinator/planner/links.h"
#include "coordinator/planner/memory.h"
#include "coordinator/state/checkpoints.h"
#include "coordinator/state/core.h"
#include "coordinator/state/text.h"
#include "run/plan/proto/plan_proto.h"

namespace longhaul::coordinator {
namespace {

// A process that died is often started again at once. Others take its place only after that.
constexpr absl::Duration kReturnPatience = absl::Seconds(5);
constexpr absl::Duration kLongestPause = absl::Seconds(60);

// Before the nth attempt in a row.
absl::Duration PauseBefore(uint32_t attempt) {
  if (attempt <= 1) return absl::ZeroDuration();
  return std::min(kLongestPause, absl::Seconds(1) * (1 << std::min(attempt - 2, 10U)));
}

// Between two workers that the plan did not know as neighbours.
void TakeMeasured(const LinkRecord* link, Flow* flow) {
  flow->bits_per_second = link == nullptr ? 0 : link->bits_per_second;
  flow->latency_seconds = link == nullptr ? 0 : absl::ToDoubleSeconds(link->round_trip) / 2;
}

}  // namespace

bool Core::CountAttempt(Run& run, const std::string& cause, const std::string& error) {
  Attempts& attempts = run.record.attempts;
  const uint32_t most = run.record.spec.recovery.attempts;
  if (run.record.step > attempts.best_step) {
    attempts.best_step = run.record.step;
    attempts.in_a_row = 0;
  }
  const bool again = !error.empty() && error == attempts.error;
  attempts.error = error;
  if (most > 0 && again) {
    Fail(run, cause + ", for the second time");
    return false;
  }
  if (++attempts.in_a_row > most) {
    Fail(run, most == 0
                  ? cause
                  : fmt::format("{}; the run has begun again {} times without finishing a new "
                                "step",
                                cause, most));
    return false;
  }
  return true;
}

void Core::Interrupt(Run& run, std::string cause, bool is_error) {
  // A user has asked for its end, and has it.
  if (run.nonfinite || run.record.stop_asked) return Fail(run, cause);
  if (!CountAttempt(run, cause, is_error ? cause : "")) return;
  run.recovery = {.since = now_,
                  .not_before = now_ + PauseBefore(run.record.attempts.in_a_row),
                  .until = now_ + run.record.spec.reattach_timeout,
                  .move_failure = {}};
  ForgetEpoch(run);
  Move(run, Trigger::kInterrupted, cause);
}

void Core::InterruptDraft(const RunId& id, const std::string& cause) {
  if (jobs_.contains(id)) return FailDraft(id, cause);
  Run& run = *FindRun(id);
  if (!CountAttempt(run, cause, "")) return;
  run.recovery.not_before = now_ + PauseBefore(run.record.attempts.in_a_row);
  run.recovery.until = now_ + run.record.spec.reattach_timeout;
  ForgetEpoch(run);
  Move(run, Trigger::kInterrupted, cause);
}

void Core::ForgetEpoch(Run& run) {
  for (StageRecord& stage : run.stages) {
    stage.ready = stage.started = stage.finished = stage.stopped = false;
    stage.finished_step = 0;
    stage.detached.reset();
    stage.last.reset();
  }
  run.recent.clear();  // what it had finished may be finished again
  run.validation.reset();
  run.partial_steps.clear();
  run.partial_checkpoints.clear();
  run.skipped_checkpoints.clear();
  run.validation_early.clear();
  run.first_nonfinite.reset();
  run.suspicion.reset();
  run.nonfinite.reset();
  run.troubled_links.clear();
}

void Core::AdvanceRecoveries() {
  for (Run* run : RunsInOrder()) {
    if (run->record.state == RunState::kRecovering) AdvanceRecovery(*run);
  }
}

void Core::AdvanceRecovery(Run& run) {
  const std::vector<Worker*> crew = CrewOf(run);
  if (shards_.IsCheckingToResume(run.record.id)) return;  // they are on their way
  if (now_ < run.recovery.not_before) return;
  const v1::CheckpointManifest* newest = NewestWhole(run.record);
  if (newest == nullptr && !run.record.checkpoints.empty()) {
    return Fail(run, run.record.reason + "; no checkpoint is whole");
  }
  std::vector<std::string> missing;
  bool by_spare = false;
  for (const StageRecord& stage : run.stages) {
    const Worker* worker = crew[stage.place];
    if (worker == nullptr) missing.push_back(Label(stage) + LeftOutText(stage.worker));
    by_spare = by_spare || (worker != nullptr && IsSpareOf(*worker, run));
  }
  const v1::CheckpointManifest* manifest = NewestWithinReach(run.record);
  const MonoTime patient_until = run.recovery.since + PatienceFor(run, newest, manifest, by_spare);
  if (newest != nullptr && (manifest == nullptr || (manifest != newest && now_ < patient_until))) {
    run.recovery.until = std::max(run.recovery.until, patient_until);
    if (!missing.empty()) {
      return Wait(run, fmt::format("waits for {} to come back", Join(missing)));
    }
    const v1::CheckpointFile* file = UnreachableFile(*newest);
    return Wait(run, fmt::format("waits for {}, which holds stage {} of the checkpoint of step {}",
                                 HoldersText(*file), file->stage(), newest->step()));
  }
  if (run.record.attempts.in_a_row > 1) {
    return PlanAnew(run,
                    fmt::format("attempt {} of {} is planned anew", run.record.attempts.in_a_row,
                                run.record.spec.recovery.attempts));
  }
  if (!run.recovery.move_failure.empty()) return PlanAnew(run, run.recovery.move_failure);
  if (!missing.empty()) {
    return Wait(run, fmt::format("waits for {} to come back", Join(missing)));
  }
  const uint64_t step = manifest == nullptr ? 0 : manifest->step();
  if (manifest != nullptr) {
    const std::vector<ShardMove> moves = MovesFor(*manifest, WithCrew(run, crew).cells);
    BeginMoves(run, step, moves);
    if (!moves.empty()) {
      for (Worker* worker : crew) worker->held = run.record.id;
      return;
    }
  }
  BeginNextEpoch(run, crew, step);
}

// For a newer checkpoint, of which somebody is away: no longer than its steps take to repeat. Where
// a spare stands ready, no longer than a process takes that is started again either.
absl::Duration Core::PatienceFor(const Run& run, const v1::CheckpointManifest* newest,
                                 const v1::CheckpointManifest* within_reach, bool by_spare) const {
  if (newest == nullptr || within_reach == nullptr) return absl::ZeroDuration();
  const auto steps = static_cast<double>(newest->step() - within_reach->step());
  const absl::Duration repeated = absl::Seconds(steps * run.record.plan->prediction.step_seconds);
  return by_spare ? std::min(kReturnPatience, repeated) : std::max(kReturnPatience, repeated);
}

void Core::Wait(Run& run, const std::string& sentence) {
  if (now_ >= run.recovery.until) return PlanAnew(run, sentence);
  if (sentence == run.waiting) return;
  run.waiting = sentence;
  Changed(run);
  Log(&run, "state", "recovering: " + sentence);
}

const v1::CheckpointManifest* Core::NewestWithinReach(const RunRecord& record) const {
  for (auto it = record.checkpoints.rbegin(); it != record.checkpoints.rend(); ++it) {
    if (DamageOf(*it).empty() && UnreachableFile(*it) == nullptr) return &*it;
  }
  return nullptr;
}

std::vector<Worker*> Core::CrewOf(Run& run) {
  std::vector<Worker*> crew(run.stages.size(), nullptr);
  for (StageRecord& stage : run.stages) {
    Worker* worker = FindWorker(stage.worker);
    const bool free = worker != nullptr && MayTake(*worker, &run.record.id);
    if (std::exchange(stage.attached, free) != free) Changed(run);
    if (!free) continue;
    worker->held = run.record.id;
    crew[stage.place] = worker;
  }
  for (const StageRecord& stage : run.stages) {
    if (crew[stage.place] != nullptr) continue;
    Worker* worker = ReplacementFor(run, stage, crew);
    if (worker != nullptr) crew[stage.place] = worker;
  }
  return crew;
}

// A spare at once; others when the worker had time to come back.
Worker* Core::ReplacementFor(Run& run, const StageRecord& stage, const std::vector<Worker*>& crew) {
  const auto takes = [&](const Worker& worker) {
    return std::ranges::find(crew, &worker) == crew.end() && CanTake(run, stage, worker, crew);
  };
  for (Worker* spare : SparesOf(run)) {
    if (MayTake(*spare, &run.record.id) && takes(*spare)) return spare;
  }
  const bool is_left_out = health_.LeftOutUntil(stage.worker, now_).has_value();
  if (!is_left_out && now_ < run.recovery.since + kReturnPatience) return nullptr;
  for (const Worker* one : ConnectedByName()) {
    if (MayTake(*one) && takes(*one)) return FindWorker(one->id);
  }
  return nullptr;
}

// Its device is of the same kind and large enough, and its neighbours are within reach.
bool Core::CanTake(const Run& run, const StageRecord& stage, const Worker& worker,
                   const std::vector<Worker*>& crew) const {
  const Cell& cell = run.assignment().cells[stage.place];
  const CandidateWorker candidate = CandidateOf(run.record.spec, worker);
  const StageMemory needs =
      MemoryOf(run.record.spec, run.assignment().data.vocabulary, cell.layers.count,
               cell.roles.embedding, cell.roles.head, candidate.on_gpu);
  const auto holds = [](uint64_t available, uint64_t needed) {
    return available == 0 || needed <= available;  // 0: unknown
  };
  if (worker.hello.devices().empty() || candidate.devices.size() < cell.group.tensor ||
      !holds(candidate.memory_bytes, cell.memory_bytes) ||
      !holds(candidate.host_memory_bytes, needs.host)) {
    return false;
  }
  const Worker* before = FindWorker(stage.worker);
  if (before != nullptr && !before->hello.devices().empty() &&
      before->hello.devices(0).kind() != worker.hello.devices(0).kind()) {
    return false;
  }
  return std::ranges::all_of(run.assignment().edges, [&](const Edge& edge) {
    if (edge.from != stage.id && edge.to != stage.id) return true;
    const Worker* peer = crew[run.Find(edge.PeerOf(stage.id))->place];
    if (peer == nullptr) return true;  // seen to when its place is taken
    return edge.from == stage.id ? PathBetween(run, worker, *peer, edge.kind).ok()
                                 : PathBetween(run, *peer, worker, edge.kind).ok();
  });
}

Assignment Core::WithCrew(const Run& run, const std::vector<Worker*>& crew) const {
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
    const std::vector<uint32_t> devices = CandidateOf(run.record.spec, worker).devices;
    if (devices.size() >= cell.devices.size()) {
      cell.devices.assign(devices.begin(),
                          devices.begin() + static_cast<long>(cell.devices.size()));
    }
  }
  assignment.sealed |= SealsLinks(run.record.spec, assignment.cells);
  for (Edge& edge : assignment.edges) {
    if (!replaced.contains(edge.from) && !replaced.contains(edge.to)) continue;
    const StatusOr<LinkEnds> ends = PathBetween(run, *crew[assignment.PlaceOf(edge.from)],
                                                *crew[assignment.PlaceOf(edge.to)], edge.kind);
    if (!ends.ok()) continue;  // CanTake has seen that there is a way
    edge.transport = std::string(ToString(ends->transport));
    edge.to_dials = ends->downstream_dials;
    const WorkerId& from = assignment.Find(edge.from)->worker;
    const WorkerId& to = assignment.Find(edge.to)->worker;
    TakeMeasured(links_.Find(from, to), &edge.forward);
    TakeMeasured(links_.Find(to, from), &edge.backward);
  }
  return assignment;
}

void Core::BeginNextEpoch(Run& run, const std::vector<Worker*>& crew, uint64_t step) {
  RunRecord& record = run.record;
  Assignment assignment = WithCrew(run, crew);
  std::string changes;
  for (const StageRecord& stage : run.stages) {
    if (crew[stage.place]->id == stage.worker) continue;
    Worker* before = FindWorker(stage.worker);
    if (before != nullptr && before->held == record.id) before->held.reset();
    crew[stage.place]->held = record.id;
    changes +=
        fmt::format("; worker {} takes the place of {}", Label(*crew[stage.place]), Label(stage));
  }
  record.epoch = record.epoch.Next();
  assignment.epoch = record.epoch;
  assignment.start_step = step;
  record.plan->assignment = std::move(assignment);
  const uint64_t before = std::exchange(record.step, step);
  DropCheckpointsAfter(run, step);
  run.stages = StagesOf(run.assignment());
  for (StageRecord& stage : run.stages) stage.attached = true;
  ReleaseSparesBeyond(run, record.spec.recovery.spares);
  run.ready_until = now_ + options_.ready_timeout;
  Move(run, Trigger::kReplaced, "",
       fmt::format("epoch {} goes on from step {}, in place{}{}", record.epoch.value(), step,
                   before > step ? fmt::format(": {} steps are repeated", before - step) : "",
                   changes));
}

void Core::PlanAnew(Run& run, const std::string& why) {
  const v1::CheckpointManifest* manifest = NewestWithinReach(run.record);
  if (manifest == nullptr) manifest = NewestWhole(run.record);
  run.record.step = manifest == nullptr ? 0 : manifest->step();
  run.queue_order = next_order_++;
  Move(run, Trigger::kNobodyThere, run.record.reason, why);
  run.stages.clear();
  run.record.plan.reset();
}

}  // namespace longhaul::coordinator
