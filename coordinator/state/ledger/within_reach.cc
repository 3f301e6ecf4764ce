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

bool AreApart(const Worker& a, const Worker& b) {
  return !a.hello.machine().empty() && !b.hello.machine().empty() &&
         a.hello.machine() != b.hello.machine();
}

bool SpansMachines(const Ledger& ledger, const Run& run) {
  const Worker* first = nullptr;
  for (const StageRecord& stage : run.stages) {
    const Worker* worker = ledger.FindWorker(stage.worker);
    if (worker == nullptr) continue;
    if (first == nullptr) first = worker;
    if (AreApart(*first, *worker)) return true;
  }
  return false;
}

bool IsHeldTwice(const Ledger& ledger, const v1::CheckpointFile& file, bool apart) {
  const Worker* first = nullptr;
  for (const v1::ShardHolder& holder : file.holders()) {
    if (!holder.problem().empty() || !IsConnected(ledger, holder)) continue;
    const Worker* worker = ledger.FindWorker(WorkerId(holder.worker_id()));
    if (worker->leaves_at) continue;
    if (first == nullptr) {
      first = worker;
    } else if (!apart || AreApart(*first, *worker)) {
      return true;
    }
  }
  return false;
}

Worker* SourceOf(Ledger& ledger, const v1::CheckpointFile& file) {
  Worker* leaving = nullptr;
  for (const v1::ShardHolder& holder : file.holders()) {
    if (!holder.problem().empty() || !IsConnected(ledger, holder)) continue;
    Worker* worker = ledger.FindWorker(WorkerId(holder.worker_id()));
    if (!worker->leaves_at) return worker;
    if (leaving == nullptr && !worker->may_leave) leaving = worker;
  }
  return leaving;
}

}  // namespace longhaul::coordinator
