#include "coordinator/state/shards/shards.h"

#include <fmt/format.h>

#include <algorithm>

#include "coordinator/state/ledger/manifests.h"
#include "coordinator/state/ledger/within_reach.h"
#include "coordinator/state/text.h"
#include "run/stored/stored_checkpoint.h"

namespace longhaul::coordinator {

namespace {

// Null: it was dropped meanwhile.
v1::CheckpointFile* FindFile(Run& run, uint64_t step, const v1::CheckpointFile& like) {
  for (v1::CheckpointManifest& manifest : run.record.checkpoints) {
    if (manifest.step() != step) continue;
    for (auto* files : {manifest.mutable_files(), manifest.mutable_recordings()}) {
      for (v1::CheckpointFile& file : *files) {
        if (file.name() == like.name() && file.sha256() == like.sha256()) return &file;
      }
    }
  }
  return nullptr;
}

}  // namespace

Shards::Shards(Ledger& ledger, const WorkerLinks& links)
    : ledger_(ledger), links_(links), book_(ledger.FirstNumber("first check of shards")) {}

void Shards::WhenDone(ShardCheck::Purpose purpose, Done done) {
  done_[static_cast<size_t>(purpose)] = std::move(done);
}

void Shards::OnMove(Run& run, const Transition& row) {
  if (row.to != RunState::kPlanning) book_.DropResumeChecks(run.record.id);
}

void Shards::Start(ShardCheck check) {
  const uint64_t id = book_.Begin(std::move(check), ledger_.now());
  const ShardCheck& started = *book_.Find(id);
  if (started.worker) {
    Send(*ledger_.FindWorker(*started.worker), id, started);
  } else {
    ledger_.Do(command::CheckCopies{id, started.files, started.folder});
  }
}

ConnectedWorkers Shards::Connected() const {
  return [this](const WorkerId& id) -> std::optional<Incarnation> {
    const Worker* worker = ledger_.FindWorker(id);
    if (worker == nullptr || !worker->session) return std::nullopt;
    return worker->incarnation;
  };
}

void Shards::Send(const Worker& worker, uint64_t id, const ShardCheck& check) {
  v1::WorkerCommand command = ledger_.CommandFor(check.run, check.epoch);
  if (check.takes) {
    v1::TakeShards& take = *command.mutable_take_shards();
    take.set_check(id);
    take.set_step(check.step);
    for (const v1::CheckpointFile& file : check.files) *take.add_files() = file;
    *take.mutable_from_folder() = *check.folder;
    ledger_.Send(worker, std::move(command));
    return;
  }
  v1::CheckShards& wanted = *command.mutable_check_shards();
  if (check.folder) *wanted.mutable_to_folder() = *check.folder;
  wanted.set_check(id);
  wanted.set_step(check.step);
  wanted.set_copy(check.copy);
  for (const v1::CheckpointFile& file : check.files) *wanted.add_files() = file;
  if (check.to) {
    SendTransfer(id, check, std::move(command));
  } else {
    ledger_.Send(worker, std::move(command));
  }
}

void Shards::Check(const Run& run, const v1::CheckpointManifest& manifest,
                   ShardCheck::Purpose purpose, RequestId request) {
  const ShardCheck about{.purpose = purpose,
                         .request = request,
                         .run = run.record.id,
                         .epoch = run.record.epoch,
                         .step = manifest.step()};
  for (ShardCheck& check : ChecksOf(manifest, about, Connected())) Start(std::move(check));
}

void Shards::AskForCopies(const Run& run, uint64_t step,
                          const std::vector<v1::CheckpointFile>& files, ShardCheck::Purpose purpose,
                          RequestId request) {
  const ShardCheck about{.purpose = purpose,
                         .request = request,
                         .run = run.record.id,
                         .epoch = run.record.epoch,
                         .step = step};
  for (ShardCheck& check : CopyChecksOf(files, about, Connected())) Start(std::move(check));
}

void Shards::OnChecked(Worker& worker, const v1::WorkerMessage& message) {
  const v1::ShardsChecked& answer = message.shards_checked();
  const std::optional<ShardCheck> taken =
      book_.TakeAnswered(worker.id, worker.incarnation, message);
  if (!taken) return;  // given up
  const ShardCheck& check = *taken;
  Run& run = *ledger_.FindRun(check.run);
  std::string failure;
  for (const v1::CheckpointFile& asked : check.files) {
    v1::CheckpointFile* file = FindFile(run, check.step, asked);
    if (file == nullptr) continue;
    const auto said =
        std::find_if(answer.shards().begin(), answer.shards().end(),
                     [&](const v1::ShardState& one) { return one.name() == asked.name(); });
    if (said != answer.shards().end() && said->unreadable()) {
      failure =
          fmt::format("worker {} cannot look at {} of the checkpoint of step {}: {}",
                      ledger_.Label(worker), asked.name(), check.step, Quoted(said->problem()));
      continue;
    }
    if (check.takes) {
      const std::string sentence = NoteTaken(
          run, check, worker, said == answer.shards().end() ? v1::ShardState() : *said, *file);
      if (!sentence.empty()) failure = sentence;
      continue;
    }
    const std::string problem = said == answer.shards().end() ? "its worker did not say how it is"
                                                              : Quoted(said->problem());
    NoteProblem(run, check.step, *file, worker.id.value(), "worker " + ledger_.Label(worker),
                problem);
    if (!problem.empty()) continue;
    book_.NoteVerified(check, asked);
    if (!check.copy) continue;
    // In a folder it counts when the whole checkpoint is there (stored.h). At the coordinator it
    // was noted when it came.
    const bool is_noted = check.folder.has_value() || (!check.to && IsCopied(*file));
    if (said->copied() && is_noted) continue;
    if (said->copied() && check.to) {
      const Worker* holder = ledger_.FindWorker(*check.to);
      AddHolder(check.to->value(), holder == nullptr ? "" : holder->hello.name(), file);
    } else if (said->copied()) {
      failure = fmt::format(
          "worker {} says that it has sent {} of the checkpoint of step {}, and it has not come",
          ledger_.Label(worker), asked.name(), check.step);
    } else {
      const Worker* holder = check.to ? ledger_.FindWorker(*check.to) : nullptr;
      failure = fmt::format("worker {} could not send {} of the checkpoint of step {}{}: {}",
                            ledger_.Label(worker), asked.name(), check.step,
                            check.folder        ? " to " + check.folder->address()
                            : holder == nullptr ? ""
                                                : " to worker " + ledger_.Label(*holder),
                            Quoted(said->copy_error()));
    }
  }
  ledger_.Store(run);
  End(check, failure);
}

// The bytes count, not the worker's word. A worker that reports a shard with the hash of somebody
// else's blob could otherwise fetch that blob. Noted at once, so that the copy counts even where
// the check is given up.
void Shards::On(event::CopyStored& stored) {
  for (const ShardCheck* check : book_.ExpectingCopy(stored.sha256, stored.from)) {
    Run& run = *ledger_.FindRun(check->run);
    bool is_new = false;
    for (const v1::CheckpointFile& asked : check->files) {
      if (asked.sha256() != stored.sha256) continue;
      v1::CheckpointFile* file = FindFile(run, check->step, asked);
      if (file == nullptr || IsCopied(*file)) continue;
      AddHolder("", "", file);
      is_new = true;
    }
    if (is_new) ledger_.Store(run);
  }
}

bool Shards::HasCopyFor(const WorkerId& from, const std::string& sha256) const {
  return std::ranges::any_of(book_.ExpectingCopy(sha256, from), [&](const ShardCheck* check) {
    const v1::CheckpointManifest* manifest =
        FindCheckpoint(ledger_.runs().at(check->run).record, check->step);
    const auto has_come = [&](const auto& file) {
      return file.sha256() == sha256 && IsCopied(file);
    };
    return manifest != nullptr && (std::ranges::any_of(manifest->files(), has_come) ||
                                   std::ranges::any_of(manifest->recordings(), has_come));
  });
}

void Shards::On(event::CopiesChecked& checked) {
  const std::optional<ShardCheck> taken = book_.TakeAnsweredByCopies(checked.check);
  if (!taken) return;
  const ShardCheck& check = *taken;
  Run& run = *ledger_.FindRun(check.run);
  std::string failure;
  for (size_t i = 0; i < check.files.size() && i < checked.problems.size(); ++i) {
    v1::CheckpointFile* file = FindFile(run, check.step, check.files[i]);
    if (file == nullptr) continue;
    const bool unreadable = i < checked.unreadable.size() && checked.unreadable[i];
    if (check.folder && !unreadable) {
      NoteProblem(run, check.step, *file, check.folder->address(), check.folder->address(),
                  checked.problems[i]);
    }
    if (checked.problems[i].empty()) {
      book_.NoteVerified(check, check.files[i]);
      continue;
    }
    // Whoever else holds the file is looked at, too.
    if (unreadable && check.folder && (IsCopied(*file) || SourceOf(ledger_, *file) != nullptr)) {
      continue;
    }
    if (unreadable) {
      failure =
          fmt::format("the coordinator cannot look at {} of {} of the checkpoint of step {}: {}",
                      check.folder ? "the copy in " + check.folder->address() : "its copy",
                      file->name(), check.step, checked.problems[i]);
      continue;
    }
    if (check.folder) continue;
    RemoveHolder("", file);
    ledger_.Log(&run, "checkpoint",
                "the coordinator's copy of {} of the checkpoint of step {} is lost: {}",
                file->name(), check.step, checked.problems[i]);
  }
  ledger_.Store(run);
  End(check, failure);
}

void Shards::NoteProblem(Run& run, uint64_t step, v1::CheckpointFile& file, const std::string& id,
                         const std::string& label, const std::string& problem) {
  auto& holders = *file.mutable_holders();
  const auto holder = std::find_if(holders.begin(), holders.end(),
                                   [&](const auto& one) { return one.worker_id() == id; });
  if (holder == holders.end() || holder->problem() == problem) return;
  holder->set_problem(problem);
  if (!problem.empty()) ledger_.Count(FaultKind::kShardDamaged);
  ledger_.Log(&run, "checkpoint",
              problem.empty() ? fmt::format("{}: {} of the checkpoint of step {} is whole again",
                                            label, file.name(), step)
                              : fmt::format("{}: {} of the checkpoint of step {} is damaged: {}",
                                            label, file.name(), step, problem));
}

void Shards::End(const ShardCheck& check, const std::string& failure) {
  const Done& done = done_[static_cast<size_t>(check.purpose)];
  if (done) done(*ledger_.FindRun(check.run), check, failure);
}

// `why`: the worker's session has ended, or it said nothing.
void Shards::GiveUp(uint64_t id, const std::string& why) {
  const std::optional<ShardCheck> taken = book_.Take(id);
  if (!taken) return;
  const ShardCheck& check = *taken;
  const Worker* worker = check.worker ? ledger_.FindWorker(*check.worker) : nullptr;
  End(check, fmt::format("{} did not finish looking at its shards of the checkpoint of step "
                         "{}: {}",
                         worker == nullptr ? "the coordinator" : "worker " + ledger_.Label(*worker),
                         check.step, why));
}

void Shards::Lose(const Worker& worker, const std::string& why) {
  for (const uint64_t id : book_.AskedOf(worker.id)) GiveUp(id, why);
}

void Shards::CheckTimers() {
  for (const uint64_t id : book_.Late(ledger_.now())) GiveUp(id, "no answer; look at its log");
}

std::set<std::pair<RunId, uint64_t>> Shards::Repeat(const Worker& worker) {
  std::set<std::pair<RunId, uint64_t>> copying;
  for (const uint64_t id : book_.AskedOf(worker.id)) {
    const ShardCheck& check = *book_.Find(id);
    Send(worker, id, check);
    if (check.copy && !check.folder) copying.insert({check.run, check.step});
  }
  return copying;
}

void Shards::DropAfter(Run& run, uint64_t step) {
  std::vector<v1::CheckpointManifest>& checkpoints = run.record.checkpoints;
  while (!checkpoints.empty() && checkpoints.back().step() > step) {
    ledger_.Log(&run, "checkpoint",
                "the checkpoint of step {} is given up: the run goes on from step {}",
                checkpoints.back().step(), step);
    const v1::CheckpointManifest dropped = std::move(checkpoints.back());
    checkpoints.pop_back();
    Drop(run, dropped);
  }
}

bool Shards::IsNamedCopy(const std::string& sha256) const {
  for (const auto& [id, run] : ledger_.runs()) {
    for (const v1::CheckpointManifest& manifest : run.record.checkpoints) {
      for (const auto* files : {&manifest.files(), &manifest.recordings()}) {
        for (const v1::CheckpointFile& file : *files) {
          if (file.sha256() == sha256 && IsCopied(file)) return true;
        }
      }
    }
  }
  return false;
}

void Shards::Drop(const Run& run, const v1::CheckpointManifest& manifest) {
  const std::set<std::string> holders = HoldersOf(manifest);
  for (const Worker* worker : ledger_.connected()) {
    // The run's own workers may have files of a copy that was given up.
    if (!holders.contains(worker->id.value()) && worker->held != run.record.id) continue;
    v1::WorkerCommand command = ledger_.CommandFor(run.record.id, run.record.epoch);
    v1::DropCheckpoint& drop = *command.mutable_drop_checkpoint();
    drop.set_step(manifest.step());
    for (const v1::CheckpointManifest& kept : run.record.checkpoints) drop.add_kept(kept.step());
    ledger_.Send(*worker, std::move(command));
  }
  command::DropCopies copies;
  for (const auto* files : {&manifest.files(), &manifest.recordings()}) {
    for (const v1::CheckpointFile& file : *files) {
      // Two runs that are alike to the bit have one copy of what both have.
      if (IsCopied(file) && !IsNamedCopy(file.sha256())) copies.sha256.push_back(file.sha256());
    }
  }
  if (!copies.sha256.empty()) ledger_.Do(std::move(copies));
  DropFromFolder(run, manifest);
}

// Only what this run has written: a checkpoint that it began from belongs to another run.
void Shards::DropFromFolder(const Run& run, const v1::CheckpointManifest& manifest) {
  const std::string& to = run.record.spec.checkpoint.to;
  if (to.empty()) return;
  const std::string folder = stored::FolderOfRun(to, run.record.id.value());
  const bool is_there = std::ranges::any_of(manifest.files(), [&](const v1::CheckpointFile& file) {
    return std::ranges::any_of(file.holders(), [&](const v1::ShardHolder& holder) {
      return holder.worker_id().starts_with(folder);
    });
  });
  if (!is_there) return;
  command::TrimFolder trim{.run = run.record.id, .address = folder, .dropped = {manifest.step()}};
  for (const v1::CheckpointManifest& kept : run.record.checkpoints) trim.kept.insert(kept.step());
  ledger_.Do(std::move(trim));
}

}  // namespace longhaul::coordinator
