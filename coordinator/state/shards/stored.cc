#include "coordinator/state/shards/stored.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "coordinator/state/ledger/manifests.h"
#include "coordinator/state/ledger/within_reach.h"
#include "run/stored/stored_checkpoint.h"

namespace longhaul::coordinator {

namespace {

// How long to wait after a failure; each further one in a row doubles it.
constexpr absl::Duration kFirstPause = absl::Seconds(30), kLongestPause = absl::Minutes(10);

}  // namespace

Stored::Stored(Ledger& ledger, Shards& shards, Copies& copies)
    : ledger_(ledger), shards_(shards), copies_(copies) {
  shards_.WhenDone(ShardCheck::Purpose::kStore,
                   [this](Run& run, const ShardCheck& check, const std::string& failure) {
                     AfterUpload(run, check, failure);
                   });
}

void Stored::OnMove(Run& run, const Transition& row) {
  if (row.trigger != Trigger::kResumed) return;
  // The file may name another folder now, or the user may have repaired what failed.
  of_.Forget(run.record.id);
  run.storing = 0;
}

void Stored::Advance() {
  for (Run* run : ledger_.WithCheckpointWork()) {
    if (!run->record.spec.checkpoint.to.empty() && !run->record.checkpoints.empty()) Advance(*run);
  }
}

const v1::CheckpointManifest* Stored::Next(const Run& run, const OfRun& of) const {
  if (of.step > 0) {
    const v1::CheckpointManifest* manifest = FindCheckpoint(run.record, of.step);
    const bool goes_on =
        manifest != nullptr && manifest->epoch() == of.epoch && !IsStored(*manifest) &&
        std::ranges::all_of(manifest->files(), [&](const v1::CheckpointFile& file) {
          return of.uploaded.contains(file.name()) || SourceOf(ledger_, file) != nullptr;
        });
    if (goes_on) return manifest;
  }
  const auto& all = run.record.checkpoints;
  const auto newest = std::find_if(all.rbegin(), all.rend(),
                                   [](const auto& manifest) { return !manifest.interim(); });
  if (newest == all.rend() || IsStored(*newest) || !DamageOf(*newest).empty()) return nullptr;
  return &*newest;
}

void Stored::Advance(Run& run) {
  OfRun& of = of_[run];
  if (of.describing || shards_.book().IsStoring(run.record.id)) return;
  if (of.not_before && ledger_.now() < *of.not_before) return;
  const v1::CheckpointManifest* manifest = Next(run, of);
  if (manifest == nullptr) {
    of.step = run.storing = 0;
    return;
  }
  if (of.step != manifest->step() || of.epoch != manifest->epoch()) {
    of.step = run.storing = manifest->step();
    of.epoch = manifest->epoch();
    of.uploaded.clear();
  }
  v1::StoredFolder folder;
  folder.set_address(stored::FolderOfStep(
      stored::FolderOfRun(run.record.spec.checkpoint.to, run.record.id.value()), of.step));
  folder.set_piece_bytes(ledger_.options().stored_piece_bytes);
  std::map<WorkerId, std::vector<v1::CheckpointFile>> uploads;
  bool is_complete = true;
  for (const v1::CheckpointFile& file : manifest->files()) {
    if (of.uploaded.contains(file.name())) continue;
    is_complete = false;
    // Its worker may come back.
    if (const Worker* source = SourceOf(ledger_, file)) uploads[source->id].push_back(file);
  }
  const uint64_t step = of.step;
  for (auto& [source, files] : uploads) {
    shards_.StartUpload(run, step, source, folder, std::move(files));
  }
  if (is_complete) Describe(run, *manifest, folder);
}

void Stored::Describe(Run& run, const v1::CheckpointManifest& manifest,
                      const v1::StoredFolder& folder) {
  v1::StoredCheckpoint checkpoint;
  checkpoint.set_format(stored::kFormat);
  checkpoint.set_version(ledger_.options().version);
  checkpoint.set_piece_bytes(folder.piece_bytes());
  *checkpoint.mutable_manifest() = manifest;
  checkpoint.mutable_manifest()->clear_recordings();  // they stay with the workers
  for (v1::CheckpointFile& file : *checkpoint.mutable_manifest()->mutable_files()) {
    file.clear_holders();
  }
  // Where workers were reached is nobody's business.
  for (v1::Cell& cell : *checkpoint.mutable_manifest()->mutable_cells()) cell.clear_endpoints();
  checkpoint.set_run_yaml(ToYaml(run.record.spec));
  for (const v1::DataFile& file : run.record.data_files) *checkpoint.add_data_files() = file;
  of_[run].describing = true;
  ledger_.Do(command::StoreCheckpoint{run.record.id, folder, std::move(checkpoint)});
}

void Stored::AfterUpload(Run& run, const ShardCheck& check, const std::string& failure) {
  OfRun& of = of_[run];
  if (check.step != of.step) return;  // of a checkpoint that the run has given up
  if (!failure.empty()) return Fail(run, failure);
  const v1::CheckpointManifest* manifest = FindCheckpoint(run.record, check.step);
  if (manifest == nullptr || manifest->epoch() != of.epoch) return;
  for (const v1::CheckpointFile& file : manifest->files()) {
    const bool is_of_check = std::ranges::any_of(check.files, [&](const v1::CheckpointFile& one) {
      return one.name() == file.name() && one.sha256() == file.sha256();
    });
    // A damaged file was not sent: another holder sends it.
    if (is_of_check && IsHeldBy(file, check.worker->value())) of.uploaded.insert(file.name());
  }
}

void Stored::On(event::CheckpointStored& stored) {
  Run* run = ledger_.FindRun(stored.run);
  if (run == nullptr) return;
  OfRun& of = of_[*run];
  const bool is_awaited = of.describing && of.step == stored.step && of.epoch == stored.epoch;
  if (is_awaited) of.describing = false;
  if (!stored.problem.empty()) {
    if (is_awaited) Fail(*run, stored.problem);
    return;
  }
  const std::string folder =
      stored::FolderOfRun(run->record.spec.checkpoint.to, run->record.id.value());
  v1::CheckpointManifest* manifest = nullptr;
  for (v1::CheckpointManifest& one : run->record.checkpoints) {
    if (one.step() == stored.step) manifest = &one;
  }
  if (manifest == nullptr) {  // the run has given it up meanwhile
    if (is_awaited) of.step = run->storing = 0;
    ledger_.Do(command::TrimFolder{.run = stored.run, .address = folder, .dropped = {stored.step}});
    return;
  }
  // Otherwise another attempt's, in whose place that of this attempt comes.
  if (!is_awaited || manifest->epoch() != stored.epoch) return;
  const std::string address = stored::FolderOfStep(folder, stored.step);
  for (v1::CheckpointFile& file : *manifest->mutable_files()) {
    AddHolder(address, "", &file);
    file.mutable_holders()->rbegin()->set_piece_bytes(ledger_.options().stored_piece_bytes);
  }
  of = {};
  run->storing = 0;
  ledger_.Store(*run);
  ledger_.Log(run, "checkpoint", "the checkpoint of step {} is in {}", stored.step, address);
  copies_.DropOutdated(*run);
}

void Stored::Fail(Run& run, const std::string& failure) {
  OfRun& of = of_[run];
  of.pause = of.pause == absl::ZeroDuration() ? kFirstPause : std::min(2 * of.pause, kLongestPause);
  of.not_before = ledger_.now() + of.pause;
  if (of.said != failure) {
    ledger_.Log(&run, "checkpoint", "{}; the next attempt follows in {}", failure,
                absl::FormatDuration(of.pause));
  }
  of.said = failure;
  // A newer checkpoint may be there by then.
  of.step = run.storing = 0;
  of.uploaded.clear();
}

MonoTime Stored::NextWake() const {
  MonoTime wake = MonoTime::max();
  for (const auto& [id, of] : of_) {
    if (of.not_before && *of.not_before > ledger_.now()) wake = std::min(wake, *of.not_before);
  }
  return wake;
}

}  // namespace longhaul::coordinator
