#include "coordinator/state/queries/garbage.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_join.h"
#include "coordinator/state/blob_names.h"
#include "coordinator/state/books/shard_files.h"
#include "coordinator/state/books/step_book.h"
#include "coordinator/state/ledger/manifests.h"
#include "coordinator/state/ledger/within_reach.h"
#include "coordinator/state/text.h"
#include "run/stored/stored_checkpoint.h"

namespace longhaul::coordinator {

namespace {

uint64_t BytesOf(const v1::CheckpointManifest& manifest) {
  uint64_t bytes = 0;
  for (const v1::CheckpointFile& file : manifest.files()) bytes += file.bytes();
  return bytes;
}

// Forgets that files are in object stores. Returns whether some were.
bool TakeFromFolders(v1::CheckpointManifest* manifest) {
  bool any = false;
  for (v1::CheckpointFile& file : *manifest->mutable_files()) {
    std::vector<std::string> folders;
    for (const v1::ShardHolder& holder : file.holders()) {
      if (IsFolder(holder.worker_id())) folders.push_back(holder.worker_id());
    }
    for (const std::string& folder : folders) RemoveHolder(folder, &file);
    any = any || !folders.empty();
  }
  return any;
}

}  // namespace

void Garbage::On(event::RemoveAsked& asked) {
  ledger_.Do(command::Reply<v1::RemoveRunReply>{asked.request, Remove(asked.run)});
}

StatusOr<v1::RemoveRunReply> Garbage::Remove(const std::string& id_or_name) {
  const StatusOr<Run*> found = ledger_.RunCalled(id_or_name);
  if (!found.ok()) {
    const RunId set_aside(id_or_name);
    if (std::ranges::count(unreadable_, set_aside, &UnreadableRun::id) == 0) return found.status();
    return RemoveUnreadable(set_aside);
  }
  Run& run = **found;
  const RunId id = run.record.id;
  if (!HasEnded(run.record.state)) {
    return FailedPrecondition("{} is {}; end it first: longhaul stop {}", id.value(),
                              ToString(run.record.state), id.value());
  }
  if (queue_.Owes(id)) {
    return FailedPrecondition("{} was submitted this moment; try again", id.value());
  }
  if (shards_.book().IsInUse(id)) {
    return FailedPrecondition(
        "checkpoints of {} are being checked or copied now; try again when that is done",
        id.value());
  }
  v1::RemoveRunReply reply;
  reply.set_run_id(id.value());
  std::vector<v1::CheckpointManifest> dropped = std::exchange(run.record.checkpoints, {});
  std::map<std::string, std::string> holders;  // id, name
  for (v1::CheckpointManifest& manifest : dropped) {
    // What is in an object store stays: it is there for when the coordinator has forgotten the run.
    if (TakeFromFolders(&manifest) && !run.record.spec.checkpoint.to.empty()) {
      reply.set_stored_in(stored::FolderOfRun(run.record.spec.checkpoint.to, id.value()));
    }
    shards_.Drop(run, manifest);
    for (const v1::CheckpointFile& file : manifest.files()) {
      for (const v1::ShardHolder& holder : file.holders()) {
        if (!holder.worker_id().empty()) holders[holder.worker_id()] = holder.worker_name();
      }
    }
  }
  for (const auto& [worker_id, name] : holders) {
    const Worker* worker = ledger_.FindWorker(WorkerId(worker_id));
    if (worker == nullptr || !worker->session) reply.add_away(name);
  }
  ledger_.Log(
      nullptr, "state", "run {} is removed, with {} checkpoints{}", id.value(), dropped.size(),
      reply.away().empty() ? ""
                           : fmt::format("; {} keep files of it, because they are not connected",
                                         absl::StrJoin(reply.away(), ", ")));
  Forget(id, run.record.epoch);
  moves_.Remove(id);
  return reply;
}

// Nobody knows which workers hold files of a run that was set aside, nor whether it has ended: a
// worker that is still at work on it hears that nobody knows it.
StatusOr<v1::RemoveRunReply> Garbage::RemoveUnreadable(const RunId& id) {
  std::erase_if(unreadable_, [&](const UnreadableRun& one) { return one.id == id; });
  ledger_.Log(nullptr, "state",
              "run {}, which could not be read, is removed; workers that are not connected may "
              "keep files of it",
              id.value());
  Forget(id, Epoch(0));
  v1::RemoveRunReply reply;
  reply.set_run_id(id.value());
  return reply;
}

void Garbage::Forget(const RunId& id, Epoch epoch) {
  // Whoever had a stage may have more than its checkpoints.
  for (const Worker* worker : ledger_.connected()) {
    v1::WorkerCommand command = ledger_.CommandFor(id, epoch);
    command.mutable_drop_checkpoint()->set_removed(true);
    ledger_.Send(*worker, std::move(command));
  }
  ledger_.Write(write::RemoveRun{id});
}

void Garbage::On(event::GarbageAsked& asked) {
  command::CollectGarbage collect{.request = asked.request, .dry_run = asked.ask.dry_run()};
  // As many as a run may compare with when it goes on.
  collect.keep_steps = std::max<uint64_t>(asked.ask.keep_steps(), kKeptSteps);
  const absl::Duration age = absl::Seconds(std::max(asked.ask.ended_seconds(), 0.0));
  if (asked.ask.has_unnamed_seconds()) {
    collect.unnamed_age = absl::Seconds(std::max(asked.ask.unnamed_seconds(), 0.0));
  }
  for (Run* run : ledger_.RunsInOrder()) {
    const RunRecord& record = run->record;
    if (!HasEnded(record.state) || shards_.book().IsInUse(record.id) ||
        absl::FromUnixMillis(record.ended_unix_ms) + age >
            absl::FromUnixMillis(ledger_.unix_ms())) {
      continue;
    }
    TrimCheckpoints(*run, collect.dry_run, &collect.reply);
    collect.trimmed.push_back(record.id);
  }
  NameAll(&collect);
  if (!unreadable_.empty()) {
    const std::string& first = unreadable_.front().id.value();
    collect.reply.set_blobs_kept_because(fmt::format(
        "{} of the store cannot be read ({}{}), and what it needs is not known; `longhaul events` "
        "says why. The version that wrote it can, and longhaul rm {} gives it up",
        unreadable_.size() == 1 ? "a run" : fmt::format("{} runs", unreadable_.size()), first,
        unreadable_.size() == 1 ? "" : ", ...", first));
  }
  ledger_.Do(std::move(collect));
}

// A resume takes the newest checkpoint that turns out to be whole, or an older one that a user asks
// for because the newest is out of reach. A file that is held once may turn out damaged, or never
// come back.
void Garbage::TrimCheckpoints(Run& run, bool dry_run, v1::CollectGarbageReply* reply) {
  const v1::CheckpointManifest* near = NewestWithinReach(ledger_, run.record);
  const uint64_t safe = NewestSafe(run.record);
  if (near == nullptr || safe == 0) return;
  uint64_t first_kept = std::min(near->step(), safe);
  // A run's newest checkpoint in an object store is what another coordinator would go on from.
  if (const uint64_t stored = NewestStored(run.record); stored > 0) {
    first_kept = std::min(first_kept, stored);
  }
  std::vector<v1::CheckpointManifest> kept, dropped;
  for (const v1::CheckpointManifest& manifest : run.record.checkpoints) {
    (manifest.step() >= first_kept ? kept : dropped).push_back(manifest);
  }
  for (const v1::CheckpointManifest& manifest : dropped) {
    auto& said = *reply->add_checkpoints();
    said.set_run_id(run.record.id.value());
    said.set_step(manifest.step());
    said.set_bytes(BytesOf(manifest));
  }
  if (dry_run || dropped.empty()) return;
  run.record.checkpoints = std::move(kept);
  for (const v1::CheckpointManifest& manifest : dropped) shards_.Drop(run, manifest);
  ledger_.Log(&run, "checkpoint", "{} checkpoints that no resume needs are deleted",
              dropped.size());
  ledger_.Store(run);
}

void Garbage::NameAll(command::CollectGarbage* collect) const {
  const auto name = [&](const std::string& sha256) { collect->named.insert(sha256); };
  std::set<std::string> lists;  // many runs may have one data set
  const auto list = [&](const std::string& sha256) {
    if (sha256.empty()) return;
    name(sha256);
    lists.insert(sha256);
  };
  for (const auto& [id, run] : ledger_.runs()) {
    EachBlobName(run.record.spec, run.record.data_files, run.record.data, name, list);
    for (const v1::CheckpointManifest& manifest : run.record.checkpoints) {
      for (const v1::CheckpointFile& file : manifest.files()) {
        if (FindHolder(file, "") != nullptr) collect->copies.insert(file.sha256());
      }
    }
  }
  planning_.EachDraft(
      [&](const Draft& draft) { EachBlobName(draft.spec, draft.files, draft.data, name, list); });
  for (const Queue::Held& held : queue_.held()) {
    const auto& files = held.submitted.submit.data_files();
    EachBlobName(held.submitted.spec, std::vector<v1::DataFile>(files.begin(), files.end()),
                 std::nullopt, name, list);
  }
  collect->lists.assign(lists.begin(), lists.end());
  for (const std::string& sha256 : shards_.book().ExpectedCopies()) collect->copies.insert(sha256);
}

void Garbage::LogUnreadable() {
  for (const UnreadableRun& run : unreadable_) {
    ledger_.Log(nullptr, "note", "run {} is set aside, its row in the store stays as it is: {}",
                run.id.value(), Quoted(run.problem));
  }
}

}  // namespace longhaul::coordinator
