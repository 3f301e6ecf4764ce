#include "coordinator/state/ledger/within_reach.h"

#include <algorithm>

#include "coordinator/state/books/shard_files.h"
#include "coordinator/state/ledger/manifests.h"

namespace longhaul::coordinator {

const v1::CheckpointFile* UnreachableFile(const Ledger& ledger,
                                          const v1::CheckpointManifest& manifest) {
  for (const v1::CheckpointFile& file : manifest.files()) {
    const bool reachable =
        std::any_of(file.holders().begin(), file.holders().end(), [&](const auto& holder) {
          return holder.problem().empty() &&
                 (holder.worker_id().empty() || IsFolder(holder.worker_id()) ||
                  IsConnected(ledger, holder));
        });
    if (!reachable) return &file;
  }
  return nullptr;
}

bool IsConnected(const Ledger& ledger, const v1::ShardHolder& holder) {
  const Worker* worker = ledger.FindWorker(WorkerId(holder.worker_id()));
  return worker != nullptr && worker->session;
}

const v1::CheckpointManifest* NewestWithinReach(const Ledger& ledger, const RunRecord& record) {
  for (auto it = record.checkpoints.rbegin(); it != record.checkpoints.rend(); ++it) {
    if (DamageOf(*it).empty() && UnreachableFile(ledger, *it) == nullptr) return &*it;
  }
  return nullptr;
}

size_t HoldersWithinReach(const Ledger& ledger, const v1::CheckpointFile& file) {
  return static_cast<size_t>(
      std::count_if(file.holders().begin(), file.holders().end(), [&ledger](const auto& holder) {
        return holder.problem().empty() && IsConnected(ledger, holder);
      }));
}

Worker* SourceOf(Ledger& ledger, const v1::CheckpointFile& file) {
  for (const v1::ShardHolder& holder : file.holders()) {
    if (!holder.problem().empty() || !IsConnected(ledger, holder)) continue;
    return ledger.FindWorker(WorkerId(holder.worker_id()));
  }
  return nullptr;
}

}  // namespace longhaul::coordinator
