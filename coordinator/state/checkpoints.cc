// Shards of committed checkpoints: looked at, copied to the coordinator, moved to other workers,
// dropped. A run resumes from a checkpoint only when all of its shards have been hashed.
#include "coordinator/state/checkpoints.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/units.h"
#include "coordinator/state/core.h"
#include "coordinator/state/resume.h"
#include "coordinator/state/text.h"

namespace longhaul::coordinator {
namespace {

// Hashing and sending shards takes as long as it takes; a worker that says nothing for so long
// never will.
constexpr absl::Duration kCheckLimit = absl::Minutes(30);

v1::CheckpointManifest* FindCheckpoint(Run& run, uint64_t step) {
  for (v1::CheckpointManifest& manifest : run.record.checkpoints) {
    if (manifest.step() == step) return &manifest;
  }
  return nullptr;
}

v1::CheckpointFile* FindFile(Run& run, uint64_t step, const v1::CheckpointFile& like) {
  v1::CheckpointManifest* manifest = FindCheckpoint(run, step);
  if (manifest == nullptr) return nullptr;  // dropped meanwhile
  for (v1::CheckpointFile& file : *manifest->mutable_files()) {
    if (file.name() == like.name() && file.sha256() == like.sha256() &&
        file.worker_id() == like.worker_id()) {
      return &file;
    }
  }
  return nullptr;
}

std::set<std::string> HoldersOf(const v1::CheckpointManifest& manifest) {
  std::set<std::string> holders;
  for (const v1::CheckpointFile& file : manifest.files()) holders.insert(file.worker_id());
  return holders;
}

}  // namespace

std::string HolderOf(const v1::CheckpointManifest& manifest, const v1::CheckpointFile& file) {
  for (const v1::StagePlan& stage : manifest.stages()) {
    if (stage.worker_id() == file.worker_id()) return stage.worker_name();
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
  check.until = now_ + kCheckLimit;
  const uint64_t id = next_check_++;
  const ShardCheck& started = checks_[id] = std::move(check);
  if (started.worker) {
    SendCheck(*FindWorker(*started.worker), id, started);
  } else {
    out_.commands.emplace_back(command::CheckCopies{id, started.files});
  }
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

// Has everybody who can be asked hash what they have of this checkpoint.
void Core::CheckCheckpoint(const Run& run, const v1::CheckpointManifest& manifest,
                           ShardCheck::Purpose purpose, RequestId request) {
  ShardCheck check;
  check.purpose = purpose;
  check.request = request;
  check.run = run.record.id;
  check.epoch = run.record.epoch;
  check.step = manifest.step();
  ShardCheck copies = check;
  for (const v1::CheckpointFile& file : manifest.files()) {
    if (file.copied()) copies.files.push_back(file);
  }
  if (!copies.files.empty()) StartCheck(std::move(copies));
  for (const std::string& holder : HoldersOf(manifest)) {
    const Worker* worker = FindWorker(WorkerId(holder));
    if (worker == nullptr || !worker->session) continue;
    ShardCheck own = check;
    own.worker = worker->id;
    own.incarnation = worker->incarnation;
    for (const v1::CheckpointFile& file : manifest.files()) {
      if (file.worker_id() == holder) own.files.push_back(file);
    }
    StartCheck(std::move(own));
  }
}

// Has those who hold `files` send copies to the coordinator.
void Core::AskForCopies(const Run& run, uint64_t step, const std::vector<v1::CheckpointFile>& files,
                        ShardCheck::Purpose purpose) {
  std::map<std::string, std::vector<v1::CheckpointFile>> by_holder;
  for (const v1::CheckpointFile& file : files) by_holder[file.worker_id()].push_back(file);
  for (auto& [holder, held] : by_holder) {
    const Worker* worker = FindWorker(WorkerId(holder));
    if (worker == nullptr || !worker->session) continue;
    ShardCheck check;
    check.purpose = purpose;
    check.run = run.record.id;
    check.epoch = run.record.epoch;
    check.step = step;
    check.worker = worker->id;
    check.incarnation = worker->incarnation;
    check.files = std::move(held);
    check.copy = true;
    StartCheck(std::move(check));
  }
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

bool Core::ExpectsCopy(const std::string& sha256, uint64_t bytes) const {
  for (const auto& [id, check] : checks_) {
    if (!check.copy) continue;
    for (const v1::CheckpointFile& file : check.files) {
      if (file.sha256() == sha256 && file.bytes() == bytes) return true;
    }
  }
  return false;
}

// ---- Answers -----------------------------------------------------------------------

void Core::OnShardsChecked(Worker& worker, const v1::WorkerMessage& message) {
  const v1::ShardsChecked& answer = message.shards_checked();
  const auto it = checks_.find(answer.check());
  if (it == checks_.end() || it->second.worker != worker.id ||
      it->second.incarnation != worker.incarnation || message.run_id() != it->second.run.value() ||
      message.epoch() != it->second.epoch.value()) {
    return;  // given up
  }
  const ShardCheck check = std::move(it->second);
  checks_.erase(it);
  Run& run = *FindRun(check.run);
  std::string failure;
  for (const v1::CheckpointFile& asked : check.files) {
    v1::CheckpointFile* file = FindFile(run, check.step, asked);
    if (file == nullptr) continue;
    const auto said =
        std::find_if(answer.shards().begin(), answer.shards().end(),
                     [&](const v1::ShardState& one) { return one.name() == asked.name(); });
    const std::string problem = said == answer.shards().end() ? "its worker did not say how it is"
                                                              : Quoted(said->problem());
    NoteProblem(run, check.step, *file, problem);
    if (!problem.empty()) continue;
    NoteVerified(check, asked);
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
  const auto it = checks_.find(checked.check);
  if (it == checks_.end() || it->second.worker) return;
  const ShardCheck check = std::move(it->second);
  checks_.erase(it);
  Run& run = *FindRun(check.run);
  for (size_t i = 0; i < check.files.size() && i < checked.problems.size(); ++i) {
    v1::CheckpointFile* file = FindFile(run, check.step, check.files[i]);
    if (file == nullptr) continue;
    if (checked.problems[i].empty()) {
      NoteVerified(check, check.files[i]);
      continue;
    }
    file->set_copied(false);
    Log(&run, "checkpoint",
        fmt::format("the coordinator's copy of {} of the checkpoint of step {} is lost: {}",
                    file->name(), check.step, checked.problems[i]));
  }
  Store(run);
  AfterCheck(check, "");
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

void Core::NoteVerified(const ShardCheck& check, const v1::CheckpointFile& file) {
  const auto job = verifications_.find(check.request);
  if (check.purpose != ShardCheck::Purpose::kVerify || job == verifications_.end()) return;
  job->second.verified.insert({check.step, file.worker_id(), file.name()});
}

// `failure`: why it could not be done, a sentence.
void Core::AfterCheck(const ShardCheck& check, const std::string& failure) {
  Run& run = *FindRun(check.run);
  switch (check.purpose) {
    case ShardCheck::Purpose::kResume:
      if (!failure.empty()) {
        FailDraft(check.run, failure);
      } else {
        AdvanceDraft(check.run);
      }
      return;
    case ShardCheck::Purpose::kVerify: {
      const bool more = std::any_of(checks_.begin(), checks_.end(), [&](const auto& entry) {
        return entry.second.purpose == ShardCheck::Purpose::kVerify &&
               entry.second.request == check.request;
      });
      const auto job = verifications_.find(check.request);
      if (more || job == verifications_.end()) return;
      out_.commands.emplace_back(
          command::ReplyCheckpoints{check.request, RenderCheckpoints(run, &job->second.verified)});
      verifications_.erase(job);
      return;
    }
    case ShardCheck::Purpose::kCopy: {
      if (!failure.empty()) {
        Log(&run, "checkpoint", failure);
        return;
      }
      const v1::CheckpointManifest* manifest = FindCheckpoint(run, check.step);
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
  const auto it = checks_.find(id);
  if (it == checks_.end()) return;
  const ShardCheck check = std::move(it->second);
  checks_.erase(it);
  const Worker* worker = check.worker ? FindWorker(*check.worker) : nullptr;
  AfterCheck(check, fmt::format("{} did not finish looking at its shards of the checkpoint of step "
                                "{}: {}",
                                worker == nullptr ? "the coordinator" : "worker " + Label(*worker),
                                check.step, why));
}

void Core::LoseChecks(const Worker& worker, const std::string& why) {
  std::vector<uint64_t> lost;
  for (const auto& [id, check] : checks_) {
    if (check.worker == worker.id) lost.push_back(id);
  }
  for (const uint64_t id : lost) GiveUpCheck(id, why);
}

// After a worker came: what it may not have heard, and what it can do now.
void Core::RepeatChecks(const Worker& worker) {
  std::set<std::pair<std::string, uint64_t>> copying;
  for (const auto& [id, check] : checks_) {
    if (check.worker != worker.id) continue;
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

void Core::EndResumeChecks(const RunId& run) {
  std::erase_if(checks_, [&](const auto& entry) {
    return entry.second.run == run && entry.second.purpose == ShardCheck::Purpose::kResume;
  });
}

// ---- Resuming ----------------------------------------------------------------------

bool Core::IsCheckingFor(const Draft& draft) const {
  return std::any_of(checks_.begin(), checks_.end(), [&](const auto& entry) {
    return entry.second.run == draft.run && entry.second.purpose == ShardCheck::Purpose::kResume;
  });
}

// True: the draft's checkpoint is whole. Else an older one is being looked at, or the draft failed.
bool Core::SettleOnCheckpoint(Run& run) {
  const v1::CheckpointManifest* manifest = FindCheckpoint(run, run.draft->resume_step);
  const std::string damage = DamageOf(*manifest);
  if (const v1::CheckpointFile* file = UnreachableFile(*manifest); damage.empty() && file) {
    FailDraft(
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
  return !IsCheckingFor(*run.draft) && SettleOnCheckpoint(run);
}

// True: every stage of the plan has its shards at hand, on its disk or at the coordinator. Else
// copies are on their way there.
bool Core::ShardsAreInPlace(const Run& run, const v1::Plan& plan) {
  const v1::CheckpointManifest* manifest = nullptr;
  for (const v1::CheckpointManifest& one : run.record.checkpoints) {
    if (one.step() == plan.start_step()) manifest = &one;
  }
  LH_CHECK(manifest != nullptr, "the plan goes on from a checkpoint that is not there");
  std::map<std::string, v1::CheckpointFile> moved;
  uint64_t bytes = 0;
  for (const v1::StagePlan& stage : plan.stages()) {
    for (const v1::CheckpointFile& file : FilesOfStage(*manifest, stage)) {
      const bool at_hand = file.worker_id() == stage.worker_id() && file.problem().empty();
      if (at_hand || file.copied()) continue;
      if (moved.emplace(file.name(), file).second) bytes += file.bytes();
    }
  }
  if (moved.empty()) return true;
  std::vector<v1::CheckpointFile> files;
  for (auto& [name, file] : moved) files.push_back(std::move(file));
  Log(&run, "checkpoint",
      fmt::format("{} shards of the checkpoint of step {} ({}) move to other workers", files.size(),
                  plan.start_step(), FormatBytes(static_cast<double>(bytes))));
  AskForCopies(run, plan.start_step(), files, ShardCheck::Purpose::kResume);
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
