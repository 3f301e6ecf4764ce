#include "tests/sim/coordinator/checkers.h"

#include <fmt/format.h>

#include <algorithm>

#include "coordinator/state/books/shard_book.h"
#include "coordinator/state/books/step_book.h"
#include "coordinator/state/ledger/manifests.h"
#include "coordinator/state/ledger/transitions.h"
#include "run/plan/proto/plan_proto.h"

namespace longhaul::coordinator::sim {
namespace {

// In one tick a run may move several times.
bool IsReachable(RunState from, RunState to) {
  if (from == to) return true;
  std::set<RunState> reached = {from};
  for (size_t round = 0; round < Transitions().size(); ++round) {
    for (const Transition& row : Transitions()) {
      if (reached.contains(row.from)) reached.insert(row.to);
    }
  }
  return reached.contains(to);
}

// An earlier fault may be what a run that began after it suffers from: nobody had noticed.
constexpr absl::Duration kAftermath = absl::Seconds(45);

}  // namespace

// ---- What comes in -----------------------------------------------------------------

void Checkers::Joined(SessionId session, const v1::Hello& hello) {
  live_[session] = hello.incarnation();
  id_of_[hello.incarnation()] = hello.worker_id();
  recovery_.Joined(session, hello);
}

void Checkers::Sees(const Event& event) {
  if (const auto* submitted = std::get_if<event::Submitted>(&event)) {
    if (submitted->submit.resume()) resumes_[submitted->request] = submitted->spec.name;
  } else if (const auto* stop = std::get_if<event::StopAsked>(&event)) {
    if (!stop->now) stops_[stop->request] = stop->run;
  } else if (const auto* left = std::get_if<event::WorkerLeft>(&event)) {
    live_.erase(left->session);
    recovery_.Left(left->session);
  } else if (const auto* hook = std::get_if<event::HookEnded>(&event)) {
    hooks_.erase(hook->run);
  }
}

void Checkers::Restarted() {
  live_.clear();
  id_of_.clear();
  welcomed_.clear();
  recovery_.Restarted();
  hooks_.clear();
  open_.clear();
  stops_.clear();
  resumes_.clear();
}

// ---- What is stored ----------------------------------------------------------------

void Checkers::Stored(const std::vector<Write>& writes) {
  moved_on_.clear();
  // An epoch may finish a step and end in one tick.
  for (const Write& write : writes) {
    if (const auto* step = std::get_if<write::StepDone>(&write)) {
      recovery_.Finished(step->run, step->step.step());
    }
  }
  for (const Write& write : writes) {
    if (const auto* run = std::get_if<write::Run>(&write)) {
      CheckRun(run->record);
    } else if (const auto* log = std::get_if<write::LogEvent>(&write)) {
      const uint64_t last = events_.empty() ? 0 : events_.back().sequence();
      if (log->event.sequence() != last + 1) {
        world_->Violate("event {} comes after {}", log->event.sequence(), last);
      }
      events_.push_back(log->event);
      world_->timeline.Note("event {}: {} {} {}", log->event.sequence(), log->event.run_id(),
                            log->event.kind(), log->event.text());
    }
  }
  // Behind the runs, whose epochs they are of.
  for (const Write& write : writes) {
    if (const auto* step = std::get_if<write::StepDone>(&write)) CheckStep(*step);
  }
  CheckStages();
}

void Checkers::CheckRun(const RunRecord& record) {
  const auto found = records_.find(record.id);
  const RunRecord* before = found == records_.end() ? nullptr : &found->second;
  if (before != nullptr) CheckMove(*before, record);
  CheckCheckpoints(before, record);
  if (before != nullptr) {
    // It may have ended and have been resumed in one tick.
    const bool resumed = before->link_secret != record.link_secret ||
                         (HasEnded(before->state) && !HasEnded(record.state)) ||
                         (before->epoch != record.epoch && IsResumeAsked(record.spec.name));
    recovery_.Stored(*before, record, resumed);
  }
  if (HasEnded(record.state) && (before == nullptr || !HasEnded(before->state))) CheckEnd(record);
  if (before == nullptr || before->epoch != record.epoch) {
    begun_at_[record.id] = world_->timeline.now();
  }
  records_[record.id] = record;
}

void Checkers::CheckMove(const RunRecord& before, const RunRecord& record) {
  const std::string& id = record.id.value();
  if (record.epoch < before.epoch) world_->Violate("{}'s epoch went backwards", id);
  if (!IsReachable(before.state, record.state)) {
    world_->Violate("{} went from {} to {}", id, ToString(before.state), ToString(record.state));
  }
  if (HasEnded(before.state) && before.state != record.state && !IsResumeAsked(record.spec.name)) {
    world_->Violate("{} had ended as {} and is {} without a user's word", id,
                    ToString(before.state), ToString(record.state));
  }
  if (record.state == RunState::kFailed && before.state != RunState::kFailed) {
    CheckMayFail(before, record);
  }
  // It may have ended and have been resumed in one tick.
  // A user's resume brings a secret of its own, also one that its user does not wait for any more.
  const bool resumed = before.link_secret != record.link_secret ||
                       (before.state != RunState::kQueued && IsResumeAsked(record.spec.name));
  if (resumed || before.epoch != record.epoch) moved_on_[record.id] = before.epoch;
  if (resumed) resumed_.insert(record.id);
  // What has no stages is at the step of the checkpoint that it goes on from.
  const bool same = before.epoch == record.epoch && !HasEnded(before.state) && !resumed &&
                    record.state != RunState::kQueued && record.state != RunState::kPlanning;
  if (same && record.step < before.step) {
    world_->Violate("{} went back from step {} to {}", id, before.step, record.step);
  }
}

void Checkers::CheckMayFail(const RunRecord& before, const RunRecord& record) {
  const std::string& id = record.id.value();
  const bool trained = before.state == RunState::kRunning || before.state == RunState::kFinishing;
  if (world_->faults.sessions_alone && trained) {
    world_->Violate("{} trained, only sessions ended, and it failed: {}", id, record.reason);
  }
  // A run whose end was asked for need not go on.
  const bool ending =
      before.state == RunState::kFinishing || std::ranges::any_of(stops_, [&](const auto& stop) {
        return stop.second == id || stop.second == record.spec.name;
      });
  if (world_->faults.curable_alone && !ending) {
    world_->Violate("{} could have gone on, and it failed: {}", id, record.reason);
  }
}

void Checkers::CheckEnd(const RunRecord& record) {
  const EpochTruth& truth = world_->epochs[KeyOf(record)];
  const std::string& id = record.id.value();
  if (record.state == RunState::kDone) {
    if (record.step != record.spec.train.steps) {
      world_->Violate("{} is done at step {} of {}", id, record.step, record.spec.train.steps);
    }
  }
  // Not by `--now`, which says "at once".
  const bool stopped =
      record.state == RunState::kStopped && record.reason.starts_with("stopped by request after");
  if (record.state == RunState::kDone || stopped) {
    for (const Cell& cell : record.plan->assignment.cells) {
      const auto finished = truth.finished.find(cell.id);
      if (finished == truth.finished.end() || finished->second != record.step) {
        world_->Violate("{} is {} at step {}, and its {} has not finished there", id,
                        ToString(record.state), record.step, ToString(cell.id));
      }
    }
  }
  if (record.state == RunState::kFailed) CheckBlame(record);
}

// A failure names a worker that something happened to, or says what else it was.
void Checkers::CheckBlame(const RunRecord& record) {
  const std::string& reason = record.reason;
  const EpochTruth& truth = world_->epochs[KeyOf(record)];
  for (uint32_t stage = 0; stage < 8; ++stage) {
    const std::string label = fmt::format("(stage {})", stage);
    const bool said = reason.find(label + " failed") != std::string::npos ||
                      reason.find(label + " lost its link") != std::string::npos;
    if (said && !truth.failed.contains({.stage = stage})) {
      world_->Violate("{}@{} failed by an error that its stage {} did not have: {}",
                      record.id.value(), record.epoch.value(), stage, reason);
    }
  }
  if (reason.find("was repeated and gave other numbers") != std::string::npos) {
    if (std::ranges::none_of(world_->miscomputed, [&](const auto& step) {
          return step.first.run == record.id.value();
        })) {
      world_->Violate("{} computed nothing wrongly, and it failed: {}", record.id.value(), reason);
    }
    return;
  }
  if (reason.find("could not be prepared") != std::string::npos ||
      reason.find(" became ") != std::string::npos) {
    return;
  }
  // Nobody knows when a file that is looked at now was changed.
  const bool damage = reason.find("damaged") != std::string::npos ||
                      reason.find("no checkpoint is whole") != std::string::npos;
  if (damage && std::ranges::any_of(world_->disks, [&](const auto& disk) {
        return disk.second.HasHarmed(record.id.value());
      })) {
    return;
  }
  const MonoTime since = begun_at_[record.id];
  bool named = false;
  for (const auto& [who, when] : world_->fault_of) {
    if (reason.find(who) == std::string::npos) continue;
    named = true;
    if (since - when <= kAftermath) return;
  }
  // Its stages prepare at different times when nobody hands out assignments.
  const auto coordinator = world_->fault_of.find("coordinator");
  if (reason.find("nobody answers") != std::string::npos && coordinator != world_->fault_of.end() &&
      since - coordinator->second <= kAftermath) {
    return;
  }
  world_->Violate("{} failed, and its reason names {}: {}", record.id.value(),
                  named ? "somebody that nothing happened to" : "nobody", reason);
}

void Checkers::CheckCheckpoints(const RunRecord* before, const RunRecord& record) {
  const std::string& id = record.id.value();
  uint64_t newest = 0;
  if (before != nullptr && !before->checkpoints.empty()) {
    newest = before->checkpoints.back().step();
    if (record.checkpoints.empty()) world_->Violate("{} lost its checkpoints", id);
  }
  // What a resume would take: only a newer one comes in its place, never garbage collection.
  if (before != nullptr && HasEnded(before->state) && HasEnded(record.state)) {
    const v1::CheckpointManifest* whole = NewestWhole(*before);
    const v1::CheckpointManifest* now = NewestWhole(record);
    for (const auto& [old, later] :
         {std::pair(whole == nullptr ? 0 : whole->step(), now == nullptr ? 0 : now->step()),
          std::pair(NewestSafe(*before), NewestSafe(record))}) {
      if (old > later && FindCheckpoint(record, old) == nullptr) {
        world_->Violate("checkpoint {} of {}, which has ended, is no more", old, id);
      }
    }
  }
  for (const v1::CheckpointManifest& manifest : record.checkpoints) {
    std::set<CellId> stages;
    for (const v1::CheckpointFile& file : manifest.files()) {
      stages.insert({.replica = file.replica(), .stage = file.stage()});
      for (const v1::ShardHolder& holder : file.holders()) CheckHolder(id, manifest, file, holder);
    }
    if (stages.size() != static_cast<size_t>(manifest.cells_size())) {
      world_->Violate("checkpoint {} of {} is offered with {} of {} shards", manifest.step(), id,
                      stages.size(), manifest.cells_size());
    }
    if (manifest.step() <= newest) continue;
    if (manifest.epoch() != record.epoch.value() && !moved_on_.contains(record.id)) {
      world_->Violate("checkpoint {} of {} was committed for epoch {} in epoch {}", manifest.step(),
                      id, manifest.epoch(), record.epoch.value());
    }
    if (!commits_.insert({id, manifest.epoch(), manifest.step()}).second) {
      world_->Violate("checkpoint {} of {} was committed twice", manifest.step(), id);
    }
  }
}

void Checkers::CheckHolder(const std::string& id, const v1::CheckpointManifest& manifest,
                           const v1::CheckpointFile& file, const v1::ShardHolder& holder) {
  if (holder.worker_id().empty() || !holder.problem().empty()) return;
  std::optional<std::string> content;
  if (IsFolder(holder.worker_id())) {
    const std::string address = holder.worker_id() + file.name();
    const auto object = world_->objects.find(address);
    if (object != world_->objects.end()) content = object->second;
    const std::string description = holder.worker_id() + "checkpoint.json";
    for (const std::string& one : {address, description}) {
      if (world_->objects_harmed.contains(one)) return;
    }
    if (!world_->objects.contains(description)) content = "undescribed";
  } else {
    const Disk& disk = world_->disks[holder.worker_id()];
    const ShardName name{id, manifest.step(), file.stage(), file.replica()};
    content = disk.Find(name);
    if (disk.WasHarmed(name)) return;
  }
  if (content == file.sha256()) return;
  world_->Violate("checkpoint {} of {} is offered, and its shard of stage {} at {} {}",
                  manifest.step(), id, file.stage(), holder.worker_id(),
                  content ? "is another" : "is nowhere");
}

void Checkers::CheckStep(const write::StepDone& done) {
  const std::string& id = done.run.value();
  const auto record = records_.find(done.run);
  const auto resumed = moved_on_.find(done.run);
  const bool just_over = resumed != moved_on_.end() && done.step.epoch() == resumed->second.value();
  if (record == records_.end() ||
      (done.step.epoch() != record->second.epoch.value() && !just_over)) {
    world_->Violate("a step of {}@{} was stored, which is not its epoch", id, done.step.epoch());
    return;
  }
  // The record of an epoch that is just over has gone on.
  const auto over = world_->epochs.lower_bound({id, done.step.epoch()});
  const EpochKey key =
      just_over && over != world_->epochs.end() ? over->first : KeyOf(record->second);
  const double loss = world_->LossAt(key, done.step.step());
  if (done.step.loss() != loss) {
    world_->Violate("step {} of {}@{} is stored with loss {} and had {}", done.step.step(), id,
                    done.step.epoch(), done.step.loss(), loss);
  }
  v1::StepRecord& row = steps_[done.run][done.step.step()];
  // A user's resume may have decided to go on with it, and nothing is promised to fewer replicas.
  if (row.step() != 0 && row.loss() != done.step.loss() && world_->steps_repeat &&
      row.replicas() == done.step.replicas() && !resumed_.contains(done.run)) {
    world_->Violate("step {} of {} had loss {} in epoch {}, and is taken with {}", row.step(), id,
                    row.loss(), row.epoch(), done.step.loss());
  }
  row = done.step;
  CheckSamples(done);
  recovery_.CheckCheckpoints(record->second, done.step);
}

// Each step reads on where the one before has ended, whatever the number of replicas was and is.
void Checkers::CheckSamples(const write::StepDone& done) {
  const v1::StepRecord& step = done.step;
  const auto& rows = steps_[done.run];
  const auto before = rows.find(step.step() - 1);
  const uint64_t expected = before == rows.end() ? 0 : ReadBy(done.run, before->second);
  if (before == rows.end() && step.step() > 1) return;
  if (step.replicas() > 0 && step.first_microbatch() == expected) return;
  world_->Violate("step {} of {}@{} reads from microbatch {} on, and those before {} are read",
                  step.step(), done.run.value(), step.epoch(), step.first_microbatch(), expected);
}

void Checkers::CheckReadSoFar(const RunRecord& record, const Assignment& assignment) {
  const auto& rows = steps_[record.id];
  const auto last = rows.find(assignment.start_step);
  if (assignment.start_step > 0 && last == rows.end()) return;
  const uint64_t expected = last == rows.end() ? 0 : ReadBy(record.id, last->second);
  if (assignment.microbatches_before == expected) return;
  world_->Violate("{}@{} goes on from step {} as if {} microbatches were read; {} are",
                  record.id.value(), assignment.epoch.value(), assignment.start_step,
                  assignment.microbatches_before.value_or(0), expected);
}

uint64_t Checkers::ReadBy(const RunId& run, const v1::StepRecord& step) const {
  return step.first_microbatch() +
         uint64_t{step.replicas()} * records_.at(run).spec.train.microbatches;
}

// One incarnation, one stage of one run.
void Checkers::CheckStages() {
  std::map<std::string, std::string> busy;
  for (const auto& [id, record] : records_) {
    if (!HoldsStages(record.state)) continue;
    for (const Cell& cell : record.plan->assignment.cells) {
      const auto [other, added] = busy.try_emplace(cell.incarnation.value(), id.value());
      if (!added) {
        world_->Violate("worker {} has a stage of {} and one of {}", cell.incarnation.value(),
                        other->second, id.value());
      }
    }
  }
}

void Checkers::CheckRecords() {
  for (const auto& [id, record] : records_) {
    for (uint64_t step = 1; step <= record.step; ++step) {
      if (!steps_[id].contains(step)) {
        world_->Violate("{} is at step {}, and step {} is not on record", id.value(), record.step,
                        step);
        return;
      }
    }
    if (record.state != RunState::kDone) continue;
    if (record.checkpoints.empty() || record.checkpoints.back().step() != record.step) {
      world_->Violate("{} is done at step {} without its checkpoint", id.value(), record.step);
    }
  }
}

bool Checkers::IsResumeAsked(const std::string& name) const {
  return std::any_of(resumes_.begin(), resumes_.end(),
                     [&](const auto& asked) { return asked.second == name; });
}

}  // namespace longhaul::coordinator::sim
