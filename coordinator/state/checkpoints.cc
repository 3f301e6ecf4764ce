// Shards of committed checkpoints: looked at, copied to the coordinator, moved to other workers,
// dropped. A run resumes from a checkpoint only when all of its shards have been hashed.
#include "coordinator/state/checkpoints.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/units.h"
#include "coordinator/state/core.h"
#include "coordinator/state/text.h"

namespace longhaul::coordinator {
namespace {

// Null: it was dropped meanwhile.
v1::CheckpointFile* FindFile(Run& run, uint64_t step, const v1::CheckpointFile& like) {
  for (v1::CheckpointManifest& manifest : run.record.checkpoints) {
    if (manifest.step() != step) continue;
    for (v1::CheckpointFile& file : *manifest.mutable_files()) {
      if (file.name() == like.name() && file.sha256() == like.sha256()) return &file;
    }
  }
  return nullptr;
}

}  // namespace

const v1::CheckpointManifest* FindCheckpoint(const RunRecord& record, uint64_t step) {
  const auto found = std::ranges::find(record.checkpoints, step, &v1::CheckpointManifest::step);
  return found == record.checkpoints.end() ? nullptr : &*found;
}

std::string HoldersText(const v1::CheckpointFile& file) {
  std::string names;
  for (const v1::ShardHolder& holder : file.holders()) {
    if (holder.worker_id().empty()) continue;
    names += (names.empty() ? "worker " : " or ") + holder.worker_name();
  }
  return names;
}

std::string DamageOf(const v1::CheckpointManifest& manifest) {
  for (const v1::CheckpointFile& file : manifest.files()) {
    const bool whole = std::any_of(file.holders().begin(), file.holders().end(),
                                   [](const auto& holder) { return holder.problem().empty(); });
    if (whole) continue;
    if (file.holders().empty()) return fmt::format("nobody holds {}", file.name());
    const v1::ShardHolder& first = file.holders(0);
    return fmt::format("worker {}: {}: {}", first.worker_name(), file.name(), first.problem());
  }
  return "";
}

const v1::CheckpointManifest* NewestWhole(const RunRecord& record, uint64_t before) {
  for (auto it = record.checkpoints.rbegin(); it != record.checkpoints.rend(); ++it) {
    if (it->step() < before && DamageOf(*it).empty()) return &*it;
  }
  return nullptr;
}

// ---- Asking ------------------------------------------------------------------------

const v1::CheckpointFile* Core::UnreachableFile(const v1::CheckpointManifest& manifest) const {
  for (const v1::CheckpointFile& file : manifest.files()) {
    const bool reachable =
        std::any_of(file.holders().begin(), file.holders().end(), [&](const auto& holder) {
          return holder.problem().empty() && (holder.worker_id().empty() || IsConnected(holder));
        });
    if (!reachable) return &file;
  }
  return nullptr;
}

bool Core::IsConnected(const v1::ShardHolder& holder) const {
  const Worker* worker = FindWorker(WorkerId(holder.worker_id()));
  return worker != nullptr && worker->session;
}

void Core::StartCheck(ShardCheck check) {
  const uint64_t id = shards_.Begin(std::move(check), now_);
  const ShardCheck& started = *shards_.Find(id);
  if (started.worker) {
    SendCheck(*FindWorker(*started.worker), id, started);
  } else {
    out_.commands.emplace_back(command::CheckCopies{id, started.files});
  }
}

ConnectedWorkers Core::Connected() const {
  return [this](const WorkerId& id) -> std::optional<Incarnation> {
    const Worker* worker = FindWorker(id);
    if (worker == nullptr || !worker->session) return std::nullopt;
    return worker->incarnation;
  };
}

void Core::SendCheck(const Worker& worker, uint64_t id, const ShardCheck& check) {
  v1::WorkerCommand command = CommandFor(check.run, check.epoch);
  v1::CheckShards& wanted = *command.mutable_check_shards();
  wanted.set_check(id);
  wanted.set_step(check.step);
  wanted.set_copy(check.copy);
  for (const v1::CheckpointFile& file : check.files) *wanted.add_files() = file;
  if (check.to) {
    SendTransfer(id, check, std::move(command));
  } else {
    Send(worker, std::move(command));
  }
}

void Core::CheckCheckpoint(const Run& run, const v1::CheckpointManifest& manifest,
                           ShardCheck::Purpose purpose, RequestId request) {
  const ShardCheck about{.purpose = purpose,
                         .request = request,
                         .run = run.record.id,
                         .epoch = run.record.epoch,
                         .step = manifest.step()};
  for (ShardCheck& check : ChecksOf(manifest, about, Connected())) StartCheck(std::move(check));
}

void Core::AskForCopies(const Run& run, uint64_t step, const std::vector<v1::CheckpointFile>& files,
                        ShardCheck::Purpose purpose, RequestId request) {
  const ShardCheck about{.purpose = purpose,
                         .request = request,
                         .run = run.record.id,
                         .epoch = run.record.epoch,
                         .step = step};
  for (ShardCheck& check : CopyChecksOf(files, about, Connected())) StartCheck(std::move(check));
}

void Core::KeepCopies(const Run& run, const v1::CheckpointManifest& manifest,
                      const std::string& only_of_worker) {
  if (!run.record.spec.checkpoint.keep_copy) return;
  std::vector<v1::CheckpointFile> files;
  for (const v1::CheckpointFile& file : manifest.files()) {
    if (IsCopied(file)) continue;
    if (only_of_worker.empty() || IsHeldBy(file, only_of_worker)) files.push_back(file);
  }
  AskForCopies(run, manifest.step(), files, ShardCheck::Purpose::kCopy);
}

// ---- Answers -----------------------------------------------------------------------

void Core::OnShardsChecked(Worker& worker, const v1::WorkerMessage& message) {
  const v1::ShardsChecked& answer = message.shards_checked();
  const std::optional<ShardCheck> taken =
      shards_.TakeAnswered(worker.id, worker.incarnation, message);
  if (!taken) return;  // given up
  const ShardCheck& check = *taken;
  Run& run = *FindRun(check.run);
  std::string failure;
  for (const v1::CheckpointFile& asked : check.files) {
    v1::CheckpointFile* file = FindFile(run, check.step, asked);
    if (file == nullptr) continue;
    const auto said =
        std::find_if(answer.shards().begin(), answer.shards().end(),
                     [&](const v1::ShardState& one) { return one.name() == asked.name(); });
    if (said != answer.shards().end() && said->unreadable()) {
      failure = fmt::format("worker {} cannot look at {} of the checkpoint of step {}: {}",
                            Label(worker), asked.name(), check.step, Quoted(said->problem()));
      continue;
    }
    const std::string problem = said == answer.shards().end() ? "its worker did not say how it is"
                                                              : Quoted(said->problem());
    NoteProblem(run, check.step, *file, worker, problem);
    if (!problem.empty()) continue;
    shards_.NoteVerified(check, asked);
    if (!check.copy) continue;
    if (said->copied() && check.to) {
      const Worker* holder = FindWorker(*check.to);
      AddHolder(check.to->value(), holder == nullptr ? "" : holder->hello.name(), file);
    } else if (said->copied() && IsCopied(*file)) {
      // It was noted when it came.
    } else if (said->copied()) {
      failure = fmt::format(
          "worker {} says that it has sent {} of the checkpoint of step {}, and it has not come",
          Label(worker), asked.name(), check.step);
    } else {
      const Worker* holder = check.to ? FindWorker(*check.to) : nullptr;
      failure = fmt::format("worker {} could not send {} of the checkpoint of step {}{}: {}",
                            Label(worker), asked.name(), check.step,
                            holder == nullptr ? "" : " to worker " + Label(*holder),
                            Quoted(said->copy_error()));
    }
  }
  Store(run);
  AfterCheck(check, failure);
}

// What counts is the bytes, not the worker's word: whoever has made up a shard of somebody else's
// hash could otherwise fetch what that hash is of. Noted at once, so that a check that is given up
// need not begin from anew.
void Core::On(event::CopyStored& stored) {
  for (const ShardCheck* check : shards_.ExpectingCopy(stored.sha256, stored.from)) {
    Run& run = *FindRun(check->run);
    bool is_new = false;
    for (const v1::CheckpointFile& asked : check->files) {
      if (asked.sha256() != stored.sha256) continue;
      v1::CheckpointFile* file = FindFile(run, check->step, asked);
      if (file == nullptr || IsCopied(*file)) continue;
      AddHolder("", "", file);
      is_new = true;
    }
    if (is_new) Store(run);
  }
}

bool Core::HasCopyFor(const WorkerId& from, const std::string& sha256) const {
  return std::ranges::any_of(shards_.ExpectingCopy(sha256, from), [&](const ShardCheck* check) {
    const v1::CheckpointManifest* manifest =
        FindCheckpoint(runs_.at(check->run).record, check->step);
    return manifest != nullptr && std::ranges::any_of(manifest->files(), [&](const auto& file) {
             return file.sha256() == sha256 && IsCopied(file);
           });
  });
}

void Core::On(event::CopiesChecked& checked) {
  const std::optional<ShardCheck> taken = shards_.TakeAnsweredByCopies(checked.check);
  if (!taken) return;
  const ShardCheck& check = *taken;
  Run& run = *FindRun(check.run);
  std::string failure;
  for (size_t i = 0; i < check.files.size() && i < checked.problems.size(); ++i) {
    v1::CheckpointFile* file = FindFile(run, check.step, check.files[i]);
    if (file == nullptr) continue;
    if (checked.problems[i].empty()) {
      shards_.NoteVerified(check, check.files[i]);
      continue;
    }
    if (i < checked.unreadable.size() && checked.unreadable[i]) {
      failure = fmt::format(
          "the coordinator cannot look at its copy of {} of the checkpoint of step {}: {}",
          file->name(), check.step, checked.problems[i]);
      continue;
    }
    RemoveHolder("", file);
    Log(&run, "checkpoint",
        fmt::format("the coordinator's copy of {} of the checkpoint of step {} is lost: {}",
                    file->name(), check.step, checked.problems[i]));
  }
  Store(run);
  AfterCheck(check, failure);
}

void Core::NoteProblem(Run& run, uint64_t step, v1::CheckpointFile& file, const Worker& worker,
                       const std::string& problem) {
  auto& holders = *file.mutable_holders();
  const auto holder = std::find_if(holders.begin(), holders.end(), [&](const auto& one) {
    return one.worker_id() == worker.id.value();
  });
  if (holder == holders.end() || holder->problem() == problem) return;
  holder->set_problem(problem);
  if (!problem.empty()) faults_.Add(FaultKind::kShardDamaged);
  Log(&run, "checkpoint",
      problem.empty() ? fmt::format("worker {}: {} of the checkpoint of step {} is whole again",
                                    Label(worker), file.name(), step)
                      : fmt::format("worker {}: {} of the checkpoint of step {} is damaged: {}",
                                    Label(worker), file.name(), step, problem));
}

// `failure`: why it could not be done, a sentence.
void Core::AfterCheck(const ShardCheck& check, const std::string& failure) {
  Run& run = *FindRun(check.run);
  switch (check.purpose) {
    case ShardCheck::Purpose::kResume:
      if (run.record.state == RunState::kRecovering) {
        if (!failure.empty()) run.recovery.move_failure = failure;
      } else if (!failure.empty()) {
        InterruptDraft(check.run, failure);
      } else {
        AdvanceDraft(check.run);
      }
      return;
    case ShardCheck::Purpose::kVerify:
      AnswerVerified(run, check.request);
      return;
    case ShardCheck::Purpose::kCopy:
      AfterCopy(run, check, failure);
      return;
  }
}

// `why`: its session has ended, or it said nothing.
void Core::GiveUpCheck(uint64_t id, const std::string& why) {
  const std::optional<ShardCheck> taken = shards_.Take(id);
  if (!taken) return;
  const ShardCheck& check = *taken;
  const Worker* worker = check.worker ? FindWorker(*check.worker) : nullptr;
  AfterCheck(check, fmt::format("{} did not finish looking at its shards of the checkpoint of step "
                                "{}: {}",
                                worker == nullptr ? "the coordinator" : "worker " + Label(*worker),
                                check.step, why));
}

void Core::LoseChecks(const Worker& worker, const std::string& why) {
  for (const uint64_t id : shards_.AskedOf(worker.id)) GiveUpCheck(id, why);
}

void Core::CheckShardTimers() {
  for (const uint64_t id : shards_.Late(now_)) GiveUpCheck(id, "no answer; look at its log");
}

// After a worker came: what it may not have heard, and what it can do now.
void Core::RepeatChecks(const Worker& worker) {
  std::set<std::pair<std::string, uint64_t>> copying;
  for (const uint64_t id : shards_.AskedOf(worker.id)) {
    const ShardCheck& check = *shards_.Find(id);
    SendCheck(worker, id, check);
    if (check.copy) copying.insert({check.run.value(), check.step});
  }
  for (const Run* run : RunsInOrder()) {
    for (const v1::CheckpointManifest& manifest : run->record.checkpoints) {
      if (copying.contains({run->record.id.value(), manifest.step()})) continue;
      KeepCopies(*run, manifest, worker.id.value());
    }
  }
}

// ---- Resuming ----------------------------------------------------------------------

// True: the draft's checkpoint is whole. Else an older one is being looked at, or the draft failed.
bool Core::SettleOnCheckpoint(Run& run) {
  const v1::CheckpointManifest* manifest = FindCheckpoint(run.record, run.draft->resume_step);
  const std::string damage = DamageOf(*manifest);
  if (const v1::CheckpointFile* file = UnreachableFile(*manifest); damage.empty() && file) {
    InterruptDraft(run.record.id,
                   fmt::format("{}, which is not connected, holds {} of the checkpoint of step {}",
                               HoldersText(*file), file->name(), manifest->step()));
    return false;
  }
  if (damage.empty()) return true;
  const std::string sentence =
      fmt::format("the checkpoint of step {} is damaged ({})", manifest->step(), damage);
  const v1::CheckpointManifest* older = NewestWhole(run.record, manifest->step());
  if (older == nullptr) {
    FailDraft(run.record.id,
              sentence + ", and there is no older one that is whole" + HowToResume(run));
    return false;
  }
  if (run.resume_exactly) {  // what the user asked for cannot be had
    FailDraft(run.record.id, sentence + HowToResume(run));
    return false;
  }
  Log(&run, "checkpoint",
      fmt::format("{}; goes on from that of step {}: steps {} to {} are trained again", sentence,
                  older->step(), older->step() + 1, manifest->step()));
  run.draft->resume_step = older->step();
  run.record.step = older->step();
  Store(run);
  CheckCheckpoint(run, *older, ShardCheck::Purpose::kResume, RequestId(0));
  return !shards_.IsCheckingToResume(run.record.id) && SettleOnCheckpoint(run);
}

// True: every stage of the plan has its shards at hand, on its disk or at the coordinator. Else
// they are on their way.
bool Core::ShardsAreInPlace(const Run& run, const Plan& plan) {
  const uint64_t step = plan.assignment.start_step;
  const v1::CheckpointManifest* manifest = FindCheckpoint(run.record, step);
  LH_CHECK(manifest != nullptr, "the plan goes on from a checkpoint that is not there");
  const std::vector<ShardMove> moves = MovesFor(*manifest, plan.assignment.cells);
  BeginMoves(run, step, moves);
  return moves.empty();
}

// Straight to who needs them; where there is no way, to the coordinator, for all who need them.
void Core::BeginMoves(const Run& run, uint64_t step, const std::vector<ShardMove>& moves) {
  if (moves.empty()) return;
  uint64_t bytes = 0;
  std::map<std::pair<WorkerId, WorkerId>, std::vector<v1::CheckpointFile>> direct;
  std::map<std::string, v1::CheckpointFile> others;
  for (const ShardMove& move : moves) {
    bytes += move.file.bytes();
    const Worker* source = SourceOf(move.file);
    const Worker* to = FindWorker(move.to);
    if (source != nullptr && to != nullptr && to->session && PathBetween(run, *source, *to).ok()) {
      direct[{source->id, to->id}].push_back(move.file);
    } else {
      others[move.file.name()] = move.file;
    }
  }
  Log(&run, "checkpoint",
      fmt::format("{} shards of the checkpoint of step {} ({}) move to other workers", moves.size(),
                  step, FormatBytes(static_cast<double>(bytes))));
  for (auto& [ends, files] : direct) {
    StartTransfer(run, step, ShardCheck::Purpose::kResume, ends.first, ends.second,
                  std::move(files));
  }
  std::vector<v1::CheckpointFile> files;
  for (auto& [name, file] : others) files.push_back(std::move(file));
  AskForCopies(run, step, files, ShardCheck::Purpose::kResume);
}

// What lies behind the point at which the run goes on is not part of it any more.
void Core::DropCheckpointsAfter(Run& run, uint64_t step) {
  run.copies_begun = 0;  // who held the newest set may have gone
  std::vector<v1::CheckpointManifest>& checkpoints = run.record.checkpoints;
  while (!checkpoints.empty() && checkpoints.back().step() > step) {
    Log(&run, "checkpoint",
        fmt::format("the checkpoint of step {} is given up: the run goes on from step {}",
                    checkpoints.back().step(), step));
    const v1::CheckpointManifest dropped = std::move(checkpoints.back());
    checkpoints.pop_back();
    DropShards(run, dropped);
  }
}

bool Core::IsNamedCopy(const std::string& sha256) const {
  for (const auto& [id, run] : runs_) {
    for (const v1::CheckpointManifest& manifest : run.record.checkpoints) {
      for (const v1::CheckpointFile& file : manifest.files()) {
        if (file.sha256() == sha256 && IsCopied(file)) return true;
      }
    }
  }
  return false;
}

void Core::DropShards(const Run& run, const v1::CheckpointManifest& manifest) {
  const std::set<std::string> holders = HoldersOf(manifest);
  for (const Worker* worker : ConnectedByName()) {
    // Of the run's own workers one may have files of a copy that was given up.
    if (!holders.contains(worker->id.value()) && worker->held != run.record.id) continue;
    v1::WorkerCommand command = CommandFor(run.record.id, run.record.epoch);
    v1::DropCheckpoint& drop = *command.mutable_drop_checkpoint();
    drop.set_step(manifest.step());
    for (const v1::CheckpointManifest& kept : run.record.checkpoints) drop.add_kept(kept.step());
    Send(*worker, std::move(command));
  }
  command::DropCopies copies;
  for (const v1::CheckpointFile& file : manifest.files()) {
    // Two runs that are alike to the bit have one copy of what both have.
    if (IsCopied(file) && !IsNamedCopy(file.sha256())) copies.sha256.push_back(file.sha256());
  }
  if (!copies.sha256.empty()) out_.commands.emplace_back(std::move(copies));
}

}  // namespace longhaul::coordinator
