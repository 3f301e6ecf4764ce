#include "coordinator/state/ledger/manifests.h"

#include <fmt/format.h>

#include <algorithm>

#include "coordinator/state/books/shard_files.h"
#include "coordinator/state/ledger/run.h"
#include "planner/replicas.h"

namespace longhaul::coordinator {

const v1::CheckpointManifest* FindCheckpoint(const RunRecord& record, uint64_t step) {
  const auto found = std::ranges::find(record.checkpoints, step, &v1::CheckpointManifest::step);
  return found == record.checkpoints.end() ? nullptr : &*found;
}

std::string HoldersText(const v1::CheckpointFile& file) {
  std::string names;
  for (const v1::ShardHolder& holder : file.holders()) {
    if (holder.worker_id().empty() || IsFolder(holder.worker_id())) continue;
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
    return fmt::format(
        "{}: {}: {}",
        IsFolder(first.worker_id()) ? first.worker_id() : "worker " + first.worker_name(),
        file.name(), first.problem());
  }
  return "";
}

const v1::CheckpointManifest* NewestWhole(const RunRecord& record, uint64_t before) {
  for (auto it = record.checkpoints.rbegin(); it != record.checkpoints.rend(); ++it) {
    if (it->step() < before && DamageOf(*it).empty()) return &*it;
  }
  return nullptr;
}

bool IsSafe(const v1::CheckpointFile& file) {
  if (IsCopied(file)) return true;
  const auto whole = std::count_if(file.holders().begin(), file.holders().end(),
                                   [](const auto& holder) { return holder.problem().empty(); });
  return whole >= 2;
}

uint64_t NewestSafe(const RunRecord& record) {
  for (auto it = record.checkpoints.rbegin(); it != record.checkpoints.rend(); ++it) {
    if (std::all_of(it->files().begin(), it->files().end(), IsSafe)) return it->step();
  }
  return 0;
}

bool IsStored(const v1::CheckpointManifest& manifest) {
  return std::ranges::all_of(manifest.files(), [](const v1::CheckpointFile& file) {
    return StoredCopyOf(file) != nullptr;
  });
}

uint64_t NewestStored(const RunRecord& record) {
  for (auto it = record.checkpoints.rbegin(); it != record.checkpoints.rend(); ++it) {
    if (IsStored(*it)) return it->step();
  }
  return 0;
}

std::string HowToResume(const RunRecord& record) {
  if (record.checkpoints.empty()) {
    return "; no checkpoint was committed, so longhaul submit run.yaml --resume starts from "
           "scratch";
  }
  const v1::CheckpointManifest* whole = NewestWhole(record);
  if (whole == nullptr) {
    return "; put the damaged files back and resume it, or submit it without --resume as a new run";
  }
  const bool newest = whole == &record.checkpoints.back();
  return fmt::format("; longhaul submit run.yaml --resume{} goes on from step {}",
                     newest ? std::string() : fmt::format(" --from-step {}", whole->step()),
                     whole->step());
}

uint64_t MicrobatchesAt(const RunRecord& record, uint64_t step) {
  const v1::CheckpointManifest* manifest = FindCheckpoint(record, step);
  if (manifest != nullptr && manifest->has_microbatches()) return manifest->microbatches();
  return step * record.spec.MicrobatchesPerStep();
}

uint64_t MicrobatchesAt(const Run& run, uint64_t step) {
  const Assignment& assignment = run.assignment();
  const RunSpec& spec = run.record.spec;
  const uint64_t before =
      assignment.microbatches_before.value_or(assignment.start_step * spec.MicrobatchesPerStep());
  return before + (step - assignment.start_step) * spec.train.microbatches * ReplicasOf(assignment);
}

}  // namespace longhaul::coordinator
