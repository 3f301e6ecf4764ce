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
template <class Record>
auto* FindCheckpoint(Record& record, uint64_t step) {
  const auto found = std::ranges::find(record.checkpoints, step, &v1::CheckpointManifest::step);
  return found == record.checkpoints.end() ? nullptr : &*found;
}

v1::CheckpointFile* FindFile(Run& run, uint64_t step, const v1::CheckpointFile& like) {
  v1::CheckpointManifest* manifest = FindCheckpoint(run.record, step);
  if (manifest == nullptr) return nullptr;
  for (v1::CheckpointFile& file : *manifest->mutable_files()) {
    if (file.name() == like.name() && file.sha256() == like.sha256() &&
        file.worker_id() == like.worker_id()) {
      return &file;
    }
  }
  return nullptr;
}

}  // namespace

std::string HolderOf(const v1::CheckpointManifest& manifest, const v1::CheckpointFile& file) {
  for (const v1::Cell& cell : manifest.cells()) {
    if (cell.worker_id() == file.worker_id()) return cell.worker_name();
  }
  return file.worker_id();
}

std::string DamageOf(const v1::CheckpointManifest& manifest) {
  for (const v1::CheckpointFile& file : manifest.files()) {
    if (file.copied() || file.problem().empty()) continue;
    return fmt::format("worker {}: {}: {}", HolderOf(manifest, file), file.name(), file.problem());
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
    const Worker* worker = FindWorker(WorkerId(file.worker_id()));
    if (!file.copied() && (worker == nullptr || !worker->session)) return &file;
  }
  return nullptr;
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
  Send(worker, std::move(command));
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
                        ShardCheck::Purpose purpose) {
  const ShardCheck about{
      .purpose = purpose, .run = run.record.id, .epoch = run.record.epoch, .step = step};
  for (ShardCheck& check : CopyChecksOf(files, about, Connected())) StartCheck(std::move(check));
}

void Core::KeepCopies(const Run& run, const v1::CheckpointManifest& manifest,
                      const std::string& only_of_worker) {
  if (!run.record.spec.checkpoint.keep_copy) return;
  std::vector<v1::CheckpointFile> files;
  for (const v1::CheckpointFile& file : manifest.files()) {
    if (file.copied() || !file.problem().empty()) continue;
    if (only_of_worker.empty() || file.worker_id() == only_of_worker) files.push_back(file);
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
    NoteProblem(run, check.step, *file, problem);
    if (!problem.empty()) continue;
    shards_.NoteVerified(check, asked);
    if (!check.copy) continue;
    if (said->copied()) {
      file->set_copied(true);
    } else {
      failure = fmt::format("worker {} could not send {} of the checkpoint of step {}: {}",
                            Label(worker), asked.name(), check.step, Quoted(said->copy_error()));
    }
  }
  Store(run);
  AfterCheck(check, failure);
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
    file->set_copied(false);
    Log(&run, "checkpoint",
        fmt::format("the coordinator's copy of {} of the checkpoint of step {} is lost: {}",
                    file->name(), check.step, checked.problems[i]));
  }
  Store(run);
  AfterCheck(check, failure);
}

void Core::NoteProblem(Run& run, uint64_t step, v1::CheckpointFile& file,
                       const std::string& problem) {
  if (file.problem() == problem) return;
  file.set_problem(problem);
  const Worker* worker = FindWorker(WorkerId(file.worker_id()));
  const std::string holder = worker == nullptr ? file.worker_id() : Label(*worker);
  Log(&run, "checkpoint",
      problem.empty() ? fmt::format("worker {}: {} of the checkpoint of step {} is whole again",
                                    holder, file.name(), step)
                      : fmt::format("worker {}: {} of the checkpoint of step {} is damaged: {}",
                                    holder, file.name(), step, problem));
}

// `failure`: why it could not be done, a sentence.
void Core::AfterCheck(const ShardCheck& check, const std::string& failure) {
  Run& run = *FindRun(check.run);
  switch (check.purpose) {
    case ShardCheck::Purpose::kResume:
      if (!failure.empty()) {
        InterruptDraft(check.run, failure);
      } else {
        AdvanceDraft(check.run);
      }
      return;
    case ShardCheck::Purpose::kVerify:
      if (const auto verified = shards_.TakeVerified(check.request)) {
        out_.commands.emplace_back(
            command::ReplyCheckpoints{check.request, RenderCheckpoints(run, &*verified)});
      }
      return;
    case ShardCheck::Purpose::kCopy: {
      if (!failure.empty()) {
        Log(&run, "checkpoint", failure);
        return;
      }
      const v1::CheckpointManifest* manifest = FindCheckpoint(run.record, check.step);
      const bool all =
          manifest != nullptr && std::all_of(manifest->files().begin(), manifest->files().end(),
                                             [](const auto& file) { return file.copied(); });
      if (all) {
        Log(&run, "checkpoint",
            fmt::format("the coordinator has a copy of the checkpoint of step {}", check.step));
      }
      return;
    }
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
    InterruptDraft(
        run.record.id,
        fmt::format("worker {}, which is not connected, holds {} of the checkpoint of step {}",
                    HolderOf(*manifest, *file), file->name(), manifest->step()));
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
// copies are on their way there.
bool Core::ShardsAreInPlace(const Run& run, const Plan& plan) {
  const uint64_t step = plan.assignment.start_step;
  const v1::CheckpointManifest* manifest = FindCheckpoint(run.record, step);
  LH_CHECK(manifest != nullptr, "the plan goes on from a checkpoint that is not there");
  const std::vector<v1::CheckpointFile> files = FilesToMove(*manifest, plan.assignment.cells);
  if (files.empty()) return true;
  uint64_t bytes = 0;
  for (const v1::CheckpointFile& file : files) bytes += file.bytes();
  Log(&run, "checkpoint",
      fmt::format("{} shards of the checkpoint of step {} ({}) move to other workers", files.size(),
                  step, FormatBytes(static_cast<double>(bytes))));
  AskForCopies(run, step, files, ShardCheck::Purpose::kResume);
  return false;
}

// What lies behind the point at which the run goes on is not part of it any more.
void Core::DropCheckpointsAfter(Run& run, uint64_t step) {
  std::vector<v1::CheckpointManifest>& checkpoints = run.record.checkpoints;
  while (!checkpoints.empty() && checkpoints.back().step() > step) {
    Log(&run, "checkpoint",
        fmt::format("the checkpoint of step {} is given up: the run goes on from step {}",
                    checkpoints.back().step(), step));
    DropShards(run, checkpoints.back());
    checkpoints.pop_back();
  }
}

void Core::DropShards(const Run& run, const v1::CheckpointManifest& manifest) {
  for (const std::string& holder : HoldersOf(manifest)) {
    const Worker* worker = FindWorker(WorkerId(holder));
    if (worker == nullptr || !worker->session) continue;
    v1::WorkerCommand command = CommandFor(run.record.id, run.record.epoch);
    command.mutable_drop_checkpoint()->set_step(manifest.step());
    Send(*worker, std::move(command));
  }
  command::DropCopies copies;
  for (const v1::CheckpointFile& file : manifest.files()) {
    if (file.copied()) copies.sha256.push_back(file.sha256());
  }
  if (!copies.sha256.empty()) out_.commands.emplace_back(std::move(copies));
}

}  // namespace longhaul::coordinator
