#include "coordinator/state/queries/rights.h"

#include <algorithm>

#include "base/printable.h"
#include "coordinator/state/blob_names.h"
#include "coordinator/state/books/shard_files.h"
#include "coordinator/state/ledger/ledger.h"

namespace longhaul::coordinator {

namespace {

// Whether the coordinator has the blobs that a list names. Else the owner need not have sent them,
// and must not get by the list what somebody else has sent.
bool IsForWorkers(const RunSpec& spec, const std::string& list) {
  return list == spec.weights.sha256 ? spec.weights.upload : spec.data.upload;
}

void AddNaming(const RunRecord& record, const std::string& sha256, Naming* naming) {
  const auto name = [&](const std::string& one) { naming->named |= one == sha256; };
  const auto list = [&](const std::string& one) {
    name(one);
    if (!one.empty() && IsForWorkers(record.spec, one)) naming->lists.push_back(one);
  };
  for (const v1::CheckpointManifest& manifest : record.checkpoints) {
    for (const auto* files : {&manifest.files(), &manifest.recordings()}) {
      for (const v1::CheckpointFile& file : *files) {
        naming->copied |= file.sha256() == sha256 && IsCopied(file);
      }
    }
  }
  EachBlobName(record.spec, record.data_files, record.data, name, list);
}

}  // namespace

bool HoldsCell(const Worker& worker, const Run& run) {
  return worker.held == run.record.id ||
         std::ranges::any_of(run.stages,
                             [&](const StageRecord& stage) { return stage.worker == worker.id; });
}

Naming NamedForWorker(const Ledger& ledger, const WorkerId& worker, const std::string& sha256) {
  Naming naming;
  const auto found = ledger.workers().find(worker);
  naming.connected = found != ledger.workers().end() && found->second.session.has_value();
  if (found == ledger.workers().end()) return naming;
  for (const Run* run : ledger.Active()) {
    if (IsActive(run->record.state) && HoldsCell(found->second, *run)) {
      AddNaming(run->record, sha256, &naming);
    }
  }
  return naming;
}

StatusOr<WorkersRun> RunOfWorker(const Ledger& ledger, const std::optional<WorkerId>& worker,
                                 const std::string& run) {
  const auto named = ledger.runs().find(RunId(run));
  const bool active = named != ledger.runs().end() && IsActive(named->second.record.state);
  if (worker) {
    const auto found = ledger.workers().find(*worker);
    if (found == ledger.workers().end() || !found->second.session) {
      return absl::UnavailableError(
          "this worker has not said hello to this coordinator; try again after that");
    }
    if (!active || !HoldsCell(found->second, named->second)) {
      return PermissionDenied("no active run {} has a cell on this worker", Printable(run, 100));
    }
  }
  if (!active) return PermissionDenied("there is no active run {}", Printable(run, 100));
  return WorkersRun{.id = named->second.record.id, .spec = named->second.record.spec};
}

Naming NamedForOwner(const Ledger& ledger, std::string_view owner, const std::string& sha256) {
  Naming naming;
  for (const auto& [id, run] : ledger.runs()) {
    if (run.record.owner == owner) AddNaming(run.record, sha256, &naming);
  }
  return naming;
}

OwnNames NamesOfOwner(const Ledger& ledger, std::string_view owner) {
  OwnNames names;
  for (const auto& [id, run] : ledger.runs()) {
    const RunRecord& record = run.record;
    if (record.owner != owner) continue;
    const auto name = [&](const std::string& one) { names.blobs.insert(one); };
    const auto list = [&](const std::string& one) {
      name(one);
      if (one.empty()) return;
      names.all_lists.insert(one);
      if (IsForWorkers(record.spec, one)) names.lists.insert(one);
    };
    EachBlobName(record.spec, record.data_files, record.data, name, list);
  }
  names.blobs.erase("");
  return names;
}

}  // namespace longhaul::coordinator
