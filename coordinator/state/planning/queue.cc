#include "coordinator/state/planning/queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/units.h"
#include "coordinator/state/ledger/epochs.h"
#include "coordinator/state/ledger/manifests.h"
#include "coordinator/state/ledger/within_reach.h"
#include "coordinator/state/member_limits.h"
#include "coordinator/state/planning/begun_elsewhere.h"
#include "coordinator/state/resume.h"
#include "coordinator/state/shards/hooks.h"
#include "coordinator/state/text.h"
#include "planner/planner.h"

namespace longhaul::coordinator {

namespace {

uint64_t TextBytes(const v1::SubmitRequest& submit) {
  uint64_t bytes = 0;
  for (const v1::DataFile& file : submit.data_files()) bytes += file.bytes();
  return bytes;
}

Status TooManyRuns(size_t wait) {
  return ResourceExhausted("{} runs wait for workers already; stop some of them or try again later",
                           wait);
}

struct RunCounts {
  size_t runs = 0, queued = 0;
  uint64_t bytes = 0;
};

Status CheckOwn(const RunCounts& own, const MemberLimits& limits, const std::string& owner,
                uint64_t more_bytes) {
  if (own.runs >= limits.runs.of_member) {
    return ResourceExhausted(
        "{} has {} runs here, and a member may have {}; remove some that nobody needs any more: "
        "longhaul rm RUN",
        owner, own.runs, limits.runs.of_member);
  }
  if (own.queued >= limits.queued_runs.of_member) {
    return ResourceExhausted(
        "{} runs of {} wait for workers, and {} of a member may; stop some of them (`longhaul stop "
        "RUN`) or try again later",
        own.queued, owner, limits.queued_runs.of_member);
  }
  if (own.bytes + more_bytes > limits.run_bytes.of_member) {
    return ResourceExhausted(
        "the run files of {} and the names of their data have {}, this run's {}, and a member may "
        "have {}; remove runs that nobody needs any more: longhaul rm RUN",
        owner, FormatBytes(own.bytes), FormatBytes(more_bytes),
        FormatBytes(limits.run_bytes.of_member));
  }
  return absl::OkStatus();
}

}  // namespace

void Queue::On(event::Submitted& submitted) {
  if (submitted.submit.has_from_checkpoint() && submitted.submit.resume()) {
    ledger_.Do(command::Reply<v1::SubmitReply>{
        submitted.request,
        absl::InvalidArgumentError("--resume goes on with a run of this coordinator, and "
                                   "--from-checkpoint makes a new run; give one of the two")});
    return;
  }
  if (submitted.submit.from_step() > 0 && !submitted.submit.resume()) {
    ledger_.Do(command::Reply<v1::SubmitReply>{
        submitted.request, absl::InvalidArgumentError("--from-step is a step to resume from; give "
                                                      "it together with --resume")});
    return;
  }
  if (const Status allowed = Hooks::CheckAllowed(ledger_.options(), submitted.spec, submitted.by);
      !allowed.ok()) {
    ledger_.Do(command::Reply<v1::SubmitReply>{submitted.request, allowed});
    return;
  }
  Submit(std::move(submitted), links_.PatientUntil());
}

void Queue::Submit(event::Submitted submitted, MonoTime until) {
  std::vector<std::string> notes;
  const bool may_wait = ledger_.now() < until;
  StatusOr<Run*> run = submitted.submit.resume() ? ResumeRun(submitted, may_wait, &notes)
                                                 : NewRun(submitted, may_wait, &notes);
  if (may_wait && absl::IsUnavailable(run.status())) {
    if (held_.size() < ledger_.options().limits.queued_runs.in_all) {
      held_.push_back({std::move(submitted), until});
      return;
    }
    run = TooManyRuns(held_.size());
  }
  if (!run.ok()) {
    ledger_.Do(command::Reply<v1::SubmitReply>{submitted.request, run.status()});
    return;
  }
  pending_.push_back({submitted.request, (*run)->record.id, (*run)->record.step, std::move(notes)});
}

void Queue::SubmitHeld() {
  for (Held& held : std::exchange(held_, {})) {
    Submit(std::move(held.submitted), held.until);
  }
}

Status Queue::CheckRoom(const Submitter& by, uint64_t bytes) const {
  const MemberLimits& limits = ledger_.options().limits;
  RunCounts all, own;
  for (const auto& [id, run] : ledger_.runs()) {
    const bool queued = run.record.state == RunState::kQueued;
    for (RunCounts* counts : {&all, &own}) {
      if (counts == &own && run.record.owner != by.name) continue;
      ++counts->runs;
      counts->queued += queued ? 1 : 0;
      counts->bytes += run.record.submitted_bytes;
    }
  }
  if (!by.may_all) LH_RETURN_IF_ERROR(CheckOwn(own, limits, by.name, bytes));
  if (all.runs >= limits.runs.in_all || all.bytes + bytes > limits.run_bytes.in_all) {
    return ResourceExhausted(
        "this coordinator keeps at most {} runs with run files of {} together, and has {} with {}; "
        "remove some that nobody needs any more: longhaul rm RUN",
        limits.runs.in_all, FormatBytes(limits.run_bytes.in_all), all.runs, FormatBytes(all.bytes));
  }
  return all.queued >= limits.queued_runs.in_all ? TooManyRuns(all.queued) : absl::OkStatus();
}

StatusOr<Run*> Queue::NewRun(event::Submitted& submitted, bool may_wait,
                             std::vector<std::string>* notes) {
  if (Run* known = ledger_.FindRun(submitted.new_id)) return known;  // the same request again
  if (submitted.new_id.value().empty() || planning_.IsJob(submitted.new_id)) {
    return Internal("'{}' cannot be the id of a new run", submitted.new_id.value());
  }
  const uint64_t bytes = submitted.submit.ByteSizeLong();
  LH_RETURN_IF_ERROR(CheckRoom(submitted.by, bytes));
  RunRecord before;  // with what the run goes on from
  if (submitted.submit.has_from_checkpoint()) {
    LH_ASSIGN_OR_RETURN(before, Elsewhere(submitted, notes));
  }
  LH_RETURN_IF_ERROR(choice_.CheckLinks(
      submitted.spec, choice_.For(submitted.spec, before, before.step), may_wait));
  LH_RETURN_IF_ERROR(CheckMessageCache(submitted.spec, TextBytes(submitted.submit)));
  Run& run = ledger_.runs()[submitted.new_id];
  run.record.checkpoints = std::move(before.checkpoints);
  run.record.step = before.step;
  run.record.id = submitted.new_id;
  run.record.spec = std::move(submitted.spec);
  run.record.data_files.assign(submitted.submit.data_files().begin(),
                               submitted.submit.data_files().end());
  run.record.link_secret = std::move(submitted.link_secret);
  run.record.submitted_unix_ms = ledger_.unix_ms();
  run.record.submitted_bytes = bytes;
  run.record.owner = submitted.by.name;
  run.order = run.queue_order = ledger_.NextOrder();
  ledger_.Store(run);
  ledger_.Log(&run, "state", "queued");
  if (before.step > 0) {
    ledger_.Log(&run, "checkpoint", "begins from the checkpoint of step {} of run {}, in {}",
                before.step, before.id.value(), submitted.submit.from_folder());
  }
  return &run;
}

namespace {

// Says how the learning rate goes on where it depends on the number of steps. "": it does not.
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
  return NotFound("run {} has no checkpoint of step {}; {}", record.id.value(), wanted,
                  steps.empty() ? "none was committed" : "it has those of steps " + Join(steps));
}

}  // namespace

StatusOr<RunRecord> Queue::Elsewhere(event::Submitted& submitted,
                                     std::vector<std::string>* notes) const {
  LH_ASSIGN_OR_RETURN(RunRecord record, RunElsewhere(submitted.submit));
  KeepChoicesToCompare(record.spec, &submitted.spec);
  const auto& files = submitted.submit.data_files();
  LH_RETURN_IF_ERROR(
      CheckResumable(record, submitted.spec, {files.begin(), files.end()}, "--from-checkpoint"));
  if (submitted.spec.train.steps <= record.step) {
    return FailedPrecondition(
        "the checkpoint is of step {} and this file ends at train.steps: {}; raise train.steps to "
        "go on",
        record.step, submitted.spec.train.steps);
  }
  KeepOtherChoices(record.spec, &submitted.spec);
  if (submitted.spec.train.dtype == ComputeDtype::kAuto) {
    submitted.spec.train.dtype = record.spec.train.dtype;
  }
  notes->push_back(fmt::format("begins from the checkpoint of step {} of run {}", record.step,
                               record.id.value()));
  if (std::string note = ScheduleNote(record.spec.train, submitted.spec.train); !note.empty()) {
    notes->push_back(std::move(note));
  }
  return record;
}

StatusOr<Run*> Queue::ResumeRun(event::Submitted& submitted, bool may_wait,
                                std::vector<std::string>* notes) {
  const std::string& name = submitted.spec.name;
  Run *newest = nullptr, *done = nullptr;
  for (Run* run : ledger_.RunsInOrder()) {
    if (run->record.spec.name != name) continue;
    if (!submitted.by.may_all && run->record.owner != submitted.by.name) continue;
    if (!HasEnded(run->record.state)) {
      return FailedPrecondition(
          "run {} is {} already; `longhaul watch {}` shows it, `longhaul stop {}` ends it",
          run->record.id.value(), ToString(run->record.state), run->record.id.value(),
          run->record.id.value());
    }
    (run->record.state == RunState::kDone ? done : newest) = run;
  }
  if (newest == nullptr) newest = done;
  if (newest == nullptr) {
    return NotFound("there is no run called '{}' to go on with; submit it without --resume", name);
  }
  RunRecord& record = newest->record;
  if (newest == done) LH_RETURN_IF_ERROR(CheckGoesFurther(record, submitted.spec));
  const std::vector<v1::DataFile> files(submitted.submit.data_files().begin(),
                                        submitted.submit.data_files().end());
  // Choices that the first plan made stay, here and below.
  KeepChoicesToCompare(record.spec, &submitted.spec);
  LH_RETURN_IF_ERROR(CheckResumable(record, submitted.spec, files));
  LH_ASSIGN_OR_RETURN(const uint64_t step, ResumeStep(record, submitted.submit.from_step()));
  if (submitted.spec.train.steps <= step) {
    return FailedPrecondition(
        "run {} has a checkpoint at step {} and this file ends at train.steps: {}; raise "
        "train.steps to go on",
        record.id.value(), step, submitted.spec.train.steps);
  }
  KeepOtherChoices(record.spec, &submitted.spec);
  LH_RETURN_IF_ERROR(
      choice_.CheckLinks(submitted.spec, choice_.For(submitted.spec, record, step), may_wait));
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
  record.submitted_bytes = submitted.submit.ByteSizeLong();
  record.link_secret = std::move(submitted.link_secret);
  record.step = step;
  record.stop_asked = record.resize_asked = false;
  record.replicas_wanted = 0;
  record.attempts = {};
  record.ended_unix_ms = 0;
  record.plan.reset();
  // Damaged files may have been put back. They are checked anew.
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
  newest->queue_order = ledger_.NextOrder();
  moves_.Move(*newest, Trigger::kResumed, "", event);
  return newest;
}

void Queue::Answer() {
  for (Pending& pending : std::exchange(pending_, {})) {
    const Run& run = *ledger_.FindRun(pending.run);
    v1::SubmitReply reply;
    reply.set_run_id(run.record.id.value());
    reply.set_resume_step(pending.resume_step);
    for (std::string& note : pending.notes) reply.add_notes(std::move(note));
    if (run.record.state == RunState::kQueued && !run.waiting.empty()) reply.add_notes(run.waiting);
    if (const Draft* draft = planning_.Find(run.record.id)) {
      std::vector<std::string> names;
      for (const Draft::Candidate& one : draft->workers) {
        if (const Worker* worker = ledger_.FindWorker(one.id))
          names.push_back(ledger_.Label(*worker));
      }
      reply.add_notes("planning on " + Join(names));
      if (const std::string risk = planning_.RiskOf(*draft); !risk.empty()) {
        reply.add_notes("warning: " + risk);
      }
    }
    ledger_.Do(command::Reply<v1::SubmitReply>{pending.request, std::move(reply)});
  }
}

void Queue::Advance() {
  std::vector<Run*> queue;
  for (Run* run : ledger_.Active()) {
    if (run->record.state == RunState::kQueued) queue.push_back(run);
  }
  std::sort(queue.begin(), queue.end(),
            [](const Run* a, const Run* b) { return a->queue_order < b->queue_order; });
  for (Run* run : queue) {
    RunRecord& record = run->record;
    if (ledger_.now() < failures_.PauseOf(*run).not_before) continue;
    // A queued run is at the step of the checkpoint that it goes on from. A run that goes on by
    // itself takes the newest one within reach, when workers had time to come back.
    uint64_t step = record.step;
    if (record.attempts.in_a_row > 0 && !run->resume_exactly &&
        ledger_.now() >= failures_.PauseOf(*run).until) {
      const v1::CheckpointManifest* manifest = NewestWithinReach(ledger_, record);
      if (manifest != nullptr) step = manifest->step();
    }
    uint32_t replicas = record.ReplicasWanted();
    const StatusOr<Candidates> candidates = choice_.ForAsManyAs(record, step, &replicas);
    if (!candidates.ok()) {
      const std::string sentence(Message(candidates.status()));
      if (sentence == run->waiting) continue;
      run->waiting = sentence;
      ledger_.Changed(*run);
      ledger_.Log(run, "state", "queued: " + sentence);
      continue;
    }
    Plan(*run, step, replicas, *candidates);
  }
}

void Queue::Plan(Run& run, uint64_t step, uint32_t replicas, const Candidates& candidates) {
  RunRecord& record = run.record;
  record.epoch = NextEpoch(run);
  record.step = step;
  run.stages.clear();
  record.plan.reset();
  if (record.spec.train.dtype == ComputeDtype::kAuto) {
    links_.SettleDtype(candidates.workers, &record.spec);
    if (record.spec.train.dtype == ComputeDtype::kBf16) {
      ledger_.Log(&run, "note",
                  "train.dtype: all workers compute on GPUs, so products are in bf16");
    }
  }
  const RunSpec spec =
      record.spec.replicas.count_auto ? record.spec : record.spec.WithReplicas(replicas);
  Draft draft = planning_.NewDraft(record.id, record.epoch, spec, record.data_files,
                                   record.link_secret, candidates);
  draft.resume_step = record.step;
  planning_.Add(std::move(draft));
  std::vector<std::string> names;
  for (const Worker* worker : candidates.workers) names.push_back(ledger_.Label(*worker));
  const bool all = !candidates.choose || *candidates.choose == names.size();
  moves_.Move(
      run, Trigger::kWorkersFree, "",
      all ? "on " + Join(names) : fmt::format("on {} of {}", *candidates.choose, Join(names)));
}

void Queue::On(event::PlanAsked& asked) {
  if (planning_.IsJob(asked.new_id)) return;  // the same request again
  const StatusOr<Candidates> workers = choice_.Any(asked.spec);
  if (!workers.ok() || ledger_.FindRun(asked.new_id) != nullptr) {
    const Status status = workers.ok() ? Internal("'{}' is the id of a run", asked.new_id.value())
                                       : FailedPrecondition("cannot plan: the run {}",
                                                            std::string(Message(workers.status())));
    ledger_.Do(command::Reply<v1::PlanReply>{asked.request, status});
    return;
  }
  const std::vector<v1::DataFile> files(asked.submit.data_files().begin(),
                                        asked.submit.data_files().end());
  links_.SettleDtype(workers->workers, &asked.spec);
  Draft draft =
      planning_.NewDraft(asked.new_id, Epoch(1), asked.spec, files, asked.link_secret, *workers);
  if (asked.submit.has_assumed_line_bits_per_second()) {
    draft.assumed_line_bits_per_second = asked.submit.assumed_line_bits_per_second();
  }
  if (asked.submit.has_assumed_delay_seconds()) {
    draft.assumed_delay = absl::Seconds(asked.submit.assumed_delay_seconds());
  }
  planning_.BeginJob(asked.request, std::move(draft));
}

bool Queue::Owes(const RunId& run) const {
  return std::ranges::any_of(pending_, [&](const Pending& one) { return one.run == run; });
}

MonoTime Queue::NextWake() const {
  MonoTime wake = MonoTime::max();
  for (const Held& held : held_) wake = std::min(wake, held.until);
  return wake;
}

void Queue::CheckInvariants() const {
  LH_CHECK(pending_.empty(), "{} submissions were not answered", pending_.size());
}

}  // namespace longhaul::coordinator
