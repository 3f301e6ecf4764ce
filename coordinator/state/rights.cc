// Which runs a worker has a part in, and which blobs runs name.
#include <algorithm>

#include "coordinator/state/blob_names.h"
#include "coordinator/state/books/shard_book.h"
#include "coordinator/state/core.h"

namespace longhaul::coordinator {
namespace {

// Whether the coordinator has what a list names. Else its owner need not have sent it, and must not
// get by the list what somebody else has sent.
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
    for (const v1::CheckpointFile& file : manifest.files()) {
      naming->copied |= file.sha256() == sha256 && IsCopied(file);
    }
  }
  EachBlobName(record.spec, record.data_files, record.data, name, list);
}

}  // namespace

bool Core::HoldsCell(const Worker& worker, const Run& run) const {
  return worker.held == run.record.id ||
         std::ranges::any_of(run.stages,
                             [&](const StageRecord& stage) { return stage.worker == worker.id; });
}

Naming Core::NamedForWorker(const WorkerId& worker, const std::string& sha256) const {
  Naming naming;
  const auto found = workers_.find(worker);
  naming.connected = found != workers_.end() && found->second.session.has_value();
  if (found == workers_.end()) return naming;
  for (const auto& [id, run] : runs_) {
    if (IsActive(run.record.state) && HoldsCell(found->second, run)) {
      AddNaming(run.record, sha256, &naming);
    }
  }
  return naming;
}

Naming Core::NamedForOwner(std::string_view owner, const std::string& sha256) const {
  Naming naming;
  for (const auto& [id, run] : runs_) {
    if (run.record.owner == owner) AddNaming(run.record, sha256, &naming);
  }
  return naming;
}

OwnNames Core::NamesOfOwner(std::string_view owner) const {
  OwnNames names;
  for (const auto& [id, run] : runs_) {
    const RunRecord& record = run.record;
    if (record.owner != owner) continue;
    const auto name = [&](const std::string& one) { names.blobs.insert(one); };
    const auto list = [&](const std::string& one) {
      name(one);
      if (!one.empty() && IsForWorkers(record.spec, one)) names.lists.insert(one);
    };
    EachBlobName(record.spec, record.data_files, record.data, name, list);
  }
  names.blobs.erase("");
  return names;
}

}  // namespace longhaul::coordinator
