// Submitted runs wait for workers, first come first served, except that a run whose workers are
// there overtakes one that still waits for some; and `longhaul plan`, which does not wait.
#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "coordinator/planner/planner.h"
#include "coordinator/state/checkpoints.h"
#include "coordinator/state/core.h"
#include "coordinator/state/resume.h"
#include "coordinator/state/text.h"
#include "run/plan/chain.h"
#include "run/plan/proto/plan_proto.h"

namespace longhaul::coordinator {
namespace {

constexpr size_t kMaxRuns = 10'000;  // all of them are in memory
constexpr size_t kMaxQueuedRuns = 500;
// Of one plan; links among more are not measured in a reasonable time.
constexpr size_t kMostCandidates = 64;

uint64_t TextBytes(const v1::SubmitRequest& submit) {
  uint64_t bytes = 0;
  for (const v1::DataFile& file : submit.data_files()) bytes += file.bytes();
  return bytes;
}

Status TooManyRuns() {
  return absl::ResourceExhaustedError(fmt::format(
      "{} runs wait for workers already; stop some of them or try again later", kMaxQueuedRuns));
}

}  // namespace

void Core::On(event::Submitted& submitted) {
  if (submitted.submit.from_step() > 0 && !submitted.submit.resume()) {
    out_.commands.emplace_back(command::ReplySubmit{
        submitted.request, absl::InvalidArgumentError("--from-step is a step to resume from; give "
                                                      "it together with --resume")});
    return;
  }
  Submit(std::move(submitted), ReachPatience());
}

void Core::Submit(event::Submitted submitted, MonoTime until) {
  std::vector<std::string> notes;
  const bool may_wait = now_ < until;
  StatusOr<Run*> run = submitted.submit.resume() ? ResumeRun(submitted, may_wait, &notes)
                                                 : NewRun(submitted, may_wait);
  if (may_wait && absl::IsUnavailable(run.status())) {
    if (held_submits_.size() < kMaxQueuedRuns) {
      held_submits_.push_back({std::move(submitted), until});
      return;
    }
    run = TooManyRuns();
  }
  if (!run.ok()) {
    out_.commands.emplace_back(command::ReplySubmit{submitted.request, run.status()});
    return;
  }
  submits_.push_back({submitted.request, (*run)->record.id, (*run)->record.step, std::move(notes)});
}

void Core::SubmitHeld() {
  for (HeldSubmit& held : std::exchange(held_submits_, {})) {
    Submit(std::move(held.submitted), held.until);
  }
}

StatusOr<Run*> Core::NewRun(event::Submitted& submitted, bool may_wait) {
  if (Run* known = FindRun(submitted.new_id)) return known;  // the same request again
  if (submitted.new_id.value().empty() || jobs_.contains(submitted.new_id)) {
    return absl::InternalError(
        fmt::format("'{}' cannot be the id of a new run", submitted.new_id.value()));
  }
  if (runs_.size() >= kMaxRuns) {
    return absl::ResourceExhaustedError(
        fmt::format("this coordinator keeps at most {} runs, and has so many; remove some that "
                    "nobody needs any more: longhaul rm RUN",
                    kMaxRuns));
  }
  const auto waits = [](const auto& entry) {
    return entry.second.record.state == RunState::kQueued;
  };
  if (static_cast<size_t>(std::count_if(runs_.begin(), runs_.end(), waits)) >= kMaxQueuedRuns) {
    return TooManyRuns();
  }
  LH_RETURN_IF_ERROR(CheckLinks(submitted.spec, ChooseWorkers(submitted.spec), may_wait));
  LH_RETURN_IF_ERROR(CheckMessageCache(submitted.spec, TextBytes(submitted.submit)));
  Run& run = runs_[submitted.new_id];
  run.record.id = submitted.new_id;
  run.record.spec = std::move(submitted.spec);
  run.record.data_files.assign(submitted.submit.data_files().begin(),
                               submitted.submit.data_files().end());
  run.record.link_secret = std::move(submitted.link_secret);
  run.record.submitted_unix_ms = unix_ms_;
  run.record.owner = submitted.by.name;
  run.order = run.queue_order = next_order_++;
  Store(run);
  Log(&run, "state", "queued");
  return &run;
}

namespace {

// What the learning rate of the steps to come is made of, where it depends on how many there are.
std::string ScheduleNote(const TrainSpec& before, const TrainSpec& now) {
  if (before.steps == now.steps || now.schedule.kind == LrScheduleKind::kConstant) return "";
  return fmt::format(
      "the learning rate is from here on that of the schedule {} over {} steps; so far it was that "
      "over {}",
      ToString(now.schedule.kind), now.steps, before.steps);
}

// The step of the checkpoint to go on from; 0: from scratch.
StatusOr<uint64_t> ResumeStep(const RunRecord& record, uint64_t wanted) {
  if (wanted == 0) return record.checkpoints.empty() ? 0 : record.checkpoints.back().step();
  std::vector<std::string> steps;
  for (const v1::CheckpointManifest& manifest : record.checkpoints) {
    if (manifest.step() == wanted) return wanted;
    steps.push_back(fmt::format("{}", manifest.step()));
  }
  return absl::NotFoundError(
      fmt::format("run {} has no checkpoint of step {}; {}", record.id.value(), wanted,
                  steps.empty() ? "none was committed" : "it has those of steps " + Join(steps)));
}

}  // namespace

StatusOr<Run*> Core::ResumeRun(event::Submitted& submitted, bool may_wait,
                               std::vector<std::string>* notes) {
  const std::string& name = submitted.spec.name;
  Run *newest = nullptr, *done = nullptr;
  for (Run* run : RunsInOrder()) {
    if (run->record.spec.name != name) continue;
    if (!submitted.by.may_all && run->record.owner != submitted.by.name) continue;
    if (!HasEnded(run->record.state)) {
      return absl::FailedPreconditionError(fmt::format(
          "run {} is {} already; `longhaul watch {}` shows it, `longhaul stop {}` ends it",
          run->record.id.value(), ToString(run->record.state), run->record.id.value(),
          run->record.id.value()));
    }
    (run->record.state == RunState::kDone ? done : newest) = run;
  }
  if (newest == nullptr) newest = done;
  if (newest == nullptr) {
    return absl::NotFoundError(
        fmt::format("there is no run called '{}' to go on with; submit it without --resume", name));
  }
  RunRecord& record = newest->record;
  if (newest == done) LH_RETURN_IF_ERROR(CheckGoesFurther(record, submitted.spec));
  const std::vector<v1::DataFile> files(submitted.submit.data_files().begin(),
                                        submitted.submit.data_files().end());
  // What the first plan settled stays, here and below.
  const RunSpec& was = record.spec;
  if (submitted.spec.replicas.count_auto && !was.replicas.count_auto &&
      submitted.spec.train.microbatches % was.replicas.count == 0) {
    submitted.spec = submitted.spec.WithChosenReplicas(was.replicas.count);
  }
  if (submitted.spec.links.HasAutoCodecs() && submitted.spec.links.chosen.empty() &&
      submitted.spec.links.error == was.links.error) {
    submitted.spec.links.chosen = was.links.chosen;
  }
  LH_RETURN_IF_ERROR(CheckResumable(record, submitted.spec, files));
  LH_ASSIGN_OR_RETURN(const uint64_t step, ResumeStep(record, submitted.submit.from_step()));
  if (submitted.spec.train.steps <= step) {
    return absl::FailedPreconditionError(fmt::format(
        "run {} has a checkpoint at step {} and this file ends at train.steps: {}; raise "
        "train.steps to go on",
        record.id.value(), step, submitted.spec.train.steps));
  }
  // Unless what the file says by now is something else.
  if (GroupSpec& group = submitted.spec.group; group.is_auto() && !record.spec.group.is_auto()) {
    const GroupSpec& before = record.spec.group;
    const GroupSpec settled = group.Settled(before.tensor, before.expert);
    if (settled.tensor == before.tensor && settled.expert == before.expert) group = settled;
  }
  if (std::optional<uint32_t>& slices = submitted.spec.pipeline.slices; !slices) {
    slices = record.spec.pipeline.slices;
  }
  LH_RETURN_IF_ERROR(
      CheckLinks(submitted.spec, WorkersFor(submitted.spec, record, step), may_wait));
  LH_RETURN_IF_ERROR(CheckMessageCache(submitted.spec, TextBytes(submitted.submit)));
  notes->push_back(step > 0 ? fmt::format("goes on from the checkpoint of step {}", step)
                            : "no checkpoint was committed: starts from scratch");
  if (submitted.spec.train.dtype == ComputeDtype::kAuto) {
    submitted.spec.train.dtype = record.spec.train.dtype;
  }
  const std::string event = notes->back();
  if (std::string note = ScheduleNote(record.spec.train, submitted.spec.train); !note.empty()) {
    notes->push_back(std::move(note));
  }
  record.spec = std::move(submitted.spec);
  record.data_files = files;
  record.link_secret = std::move(submitted.link_secret);
  record.step = step;
  record.stop_asked = record.resize_asked = false;
  record.replicas_wanted = 0;
  record.attempts = {};
  record.ended_unix_ms = 0;
  record.plan.reset();
  // Files may have been put back; they are looked at anew.
  for (v1::CheckpointManifest& manifest : record.checkpoints) {
    for (v1::CheckpointFile& file : *manifest.mutable_files()) {
      for (v1::ShardHolder& holder : *file.mutable_holders()) holder.clear_problem();
    }
  }
  const uint64_t order = newest->order, sequence = newest->sequence;
  RunRecord kept = std::move(record);
  *newest = Run();  // whatever was known of the old epoch is over
  newest->record = std::move(kept);
  newest->order = order;
  newest->sequence = sequence;
  newest->resume_exactly = submitted.submit.from_step() > 0;
  newest->queue_order = next_order_++;
  Move(*newest, Trigger::kResumed, "", event);
  return newest;
}

void Core::AnswerSubmits() {
  for (PendingSubmit& pending : std::exchange(submits_, {})) {
    const Run& run = *FindRun(pending.run);
    v1::SubmitReply reply;
    reply.set_run_id(run.record.id.value());
    reply.set_resume_step(pending.resume_step);
    for (std::string& note : pending.notes) reply.add_notes(std::move(note));
    if (run.record.state == RunState::kQueued && !run.waiting.empty()) reply.add_notes(run.waiting);
    if (run.draft) {
      std::vector<std::string> names;
      for (const Draft::Candidate& one : run.draft->workers) {
        if (const Worker* worker = FindWorker(one.id)) names.push_back(Label(*worker));
      }
      reply.add_notes("planning on " + Join(names));
    }
    out_.commands.emplace_back(command::ReplySubmit{pending.request, std::move(reply)});
  }
}

void Core::AdvanceQueue() {
  std::vector<Run*> queue;
  for (auto& [id, run] : runs_) {
    if (run.record.state == RunState::kQueued) queue.push_back(&run);
  }
  std::sort(queue.begin(), queue.end(),
            [](const Run* a, const Run* b) { return a->queue_order < b->queue_order; });
  for (Run* run : queue) {
    RunRecord& record = run->record;
    if (now_ < run->recovery.not_before) continue;
    // A queued run is at the step of the checkpoint that it goes on from. One that nobody has asked
    // to go on does with what is within reach, when others had time to come back.
    uint64_t step = record.step;
    if (record.attempts.in_a_row > 0 && !run->resume_exactly && now_ >= run->recovery.until) {
      const v1::CheckpointManifest* manifest = NewestWithinReach(record);
      if (manifest != nullptr) step = manifest->step();
    }
    uint32_t replicas = record.ReplicasWanted();
    const StatusOr<Candidates> candidates = WorkersForAsManyAs(record, step, &replicas);
    if (!candidates.ok()) {
      const std::string sentence(Message(candidates.status()));
      if (sentence == run->waiting) continue;
      run->waiting = sentence;
      Changed(*run);
      Log(run, "state", "queued: " + sentence);
      continue;
    }
    record.epoch = record.epoch.Next();
    record.step = step;
    run->stages.clear();
    record.plan.reset();
    if (record.spec.train.dtype == ComputeDtype::kAuto) {
      SettleDtype(candidates->workers, &record.spec);
      if (record.spec.train.dtype == ComputeDtype::kBf16) {
        Log(run, "note", "train.dtype: all workers compute on GPUs, so products are in bf16");
      }
    }
    const RunSpec spec =
        record.spec.replicas.count_auto ? record.spec : record.spec.WithReplicas(replicas);
    run->draft =
        NewDraft(record.id, record.epoch, spec, record.data_files, record.link_secret, *candidates);
    run->draft->resume_step = record.step;
    std::vector<std::string> names;
    for (const Worker* worker : candidates->workers) names.push_back(Label(*worker));
    const bool all = !candidates->choose || *candidates->choose == names.size();
    Move(*run, Trigger::kWorkersFree, "",
         all ? "on " + Join(names) : fmt::format("on {} of {}", *candidates->choose, Join(names)));
  }
}

bool Core::NameLess::operator()(const Worker* a, const Worker* b) const {
  if (a->hello.name() != b->hello.name()) return NaturalLess(a->hello.name(), b->hello.name());
  return a->id < b->id;
}

std::vector<const Worker*> Core::ConnectedByName() const {
  return {connected_.begin(), connected_.end()};
}

// A run that begins waits for all its replicas. One that goes on by itself does with those that it
// had or, where recovery.replicas says continue, with one.
StatusOr<Candidates> Core::WorkersForAsManyAs(const RunRecord& record, uint64_t step,
                                              uint32_t* replicas) {
  uint32_t least = *replicas;
  const v1::CheckpointManifest* manifest = FindCheckpoint(record, step);
  const bool goes_on = record.attempts.in_a_row > 0 && record.started_unix_ms != 0;
  if (goes_on && record.spec.recovery.replicas == LostReplica::kContinue) {
    least = 1;
  } else if (goes_on && manifest != nullptr) {
    least = std::min(least, ReplicasOf(*manifest));
  }
  if (record.spec.replicas.count_auto) return WorkersFor(record.spec, record, step);
  const uint32_t wanted = *replicas;
  StatusOr<Candidates> of_all = WorkersFor(record.spec.WithReplicas(wanted), record, step);
  if (of_all.ok()) return of_all;
  while (--*replicas >= std::max(least, 1U)) {
    StatusOr<Candidates> found = WorkersFor(record.spec.WithReplicas(*replicas), record, step);
    if (found.ok()) return found;
  }
  return of_all;
}

StatusOr<Candidates> Core::WorkersFor(const RunSpec& spec, const RunRecord& record,
                                      uint64_t resume_step) {
  for (const v1::CheckpointManifest& manifest : record.checkpoints) {
    if (manifest.step() == resume_step) return WorkersForResume(spec, record, manifest);
  }
  return ChooseWorkers(spec);
}

std::vector<Worker*> Core::FreeFor(const RunSpec& spec) {
  std::vector<Worker*> free;
  for (const Worker* worker : ConnectedByName()) {
    if (MayTake(*worker)) free.push_back(FindWorker(worker->id));
  }
  const auto lacking = std::ranges::stable_partition(
      free, [&](const Worker* worker) { return HasDevicesFor(spec, *worker); });
  if (!spec.pipeline.stages && lacking.begin() != free.begin()) {
    free.erase(lacking.begin(), free.end());
  }
  return free;
}

bool Core::HasDevicesFor(const RunSpec& spec, const Worker& worker) const {
  return spec.group.tensor == 1 || CheckDevices(spec, {CandidateOf(spec, worker)}).ok();
}

StatusOr<Candidates> Core::ChooseWorkers(const RunSpec& spec) {
  std::vector<Worker*> free = FreeFor(spec);
  // Spares are set apart where the count of stages or replicas is left to us, but for them no run
  // waits.
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
  // Where there are enough of the better kind none of the other one are considered: those decide
  // what type a run computes in, and whether it may have its ranks.
  const auto keep = [&](const auto& is_good) {
    const auto rest = std::ranges::stable_partition(free, is_good);
    if (static_cast<size_t>(rest.begin() - free.begin()) >= needed) {
      free.erase(rest.begin(), free.end());
    } else {
      std::ranges::sort(free, NameLess());
    }
  };
  if (!by_name) {
    keep([&](const Worker* worker) { return HasDevicesFor(spec, *worker); });
    keep([&](const Worker* worker) { return CandidateOf(spec, *worker).on_gpu; });
  }
  if (free.size() > kMostCandidates) free.resize(std::max<size_t>(kMostCandidates, needed));
  if (spec.replicas.count_auto) {  // as many as the plan likes
    const size_t most = free.size() > apart ? free.size() - apart : 0;
    return Candidates{std::move(free), std::max(needed, static_cast<uint32_t>(most))};
  }
  return Candidates{std::move(free), needed};
}

// Every shard must be within reach. Those who hold some come first, in their old places where there
// are as many stages as before.
StatusOr<Candidates> Core::WorkersForResume(const RunSpec& spec, const RunRecord& record,
                                            const v1::CheckpointManifest& manifest) {
  if (const v1::CheckpointFile* file = UnreachableFile(manifest)) {
    std::string sentence = fmt::format(
        "waits for {}, which is not connected: it holds stage {} of the "
        "checkpoint of step {}",
        HoldersText(*file), file->stage(), manifest.step());
    const v1::CheckpointManifest* older = NewestWhole(record, manifest.step());
    if (older != nullptr && UnreachableFile(*older) == nullptr) {
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

std::string Core::ShortageSentence(const RunSpec& spec) const {
  std::vector<std::string> names;
  size_t busy = 0;
  for (const Worker* worker : ConnectedByName()) {
    if (worker->held) ++busy;
    names.push_back(worker->held
                        ? fmt::format("{} (busy with {})", Label(*worker), worker->held->value())
                        : Label(*worker) + LeftOutText(worker->id));
  }
  const uint32_t needed = spec.pipeline.stages.value_or(1) * spec.replicas.count;
  return fmt::format("needs {} {}{}, {} connected{}{}", needed, busy > 0 ? "free " : "",
                     needed == 1 ? "worker" : "workers", names.size(), names.empty() ? "" : ": ",
                     Join(names));
}

void Core::On(event::PlanAsked& asked) {
  if (jobs_.contains(asked.new_id)) return;  // the same request again
  const StatusOr<Candidates> workers = ChooseWorkers(asked.spec);
  if (!workers.ok() || FindRun(asked.new_id) != nullptr) {
    const Status status =
        workers.ok()
            ? absl::InternalError(fmt::format("'{}' is the id of a run", asked.new_id.value()))
            : absl::FailedPreconditionError(
                  fmt::format("cannot plan: the run {}", std::string(Message(workers.status()))));
    out_.commands.emplace_back(command::ReplyPlan{asked.request, status});
    return;
  }
  const std::vector<v1::DataFile> files(asked.submit.data_files().begin(),
                                        asked.submit.data_files().end());
  SettleDtype(workers->workers, &asked.spec);
  PlanJob& job = jobs_[asked.new_id];
  job.request = asked.request;
  job.draft = NewDraft(asked.new_id, Epoch(1), asked.spec, files, asked.link_secret, *workers);
  if (asked.submit.has_assumed_line_bits_per_second()) {
    job.draft.assumed_line_bits_per_second = asked.submit.assumed_line_bits_per_second();
  }
  if (asked.submit.has_assumed_delay_seconds()) {
    job.draft.assumed_delay = absl::Seconds(asked.submit.assumed_delay_seconds());
  }
  BeginDraft(job.draft);
}

}  // namespace longhaul::coordinator
