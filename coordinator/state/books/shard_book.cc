#include "coordinator/state/books/shard_book.h"

#include <algorithm>
#include <utility>

#include "run/stored/stored_checkpoint.h"

namespace longhaul::coordinator {
namespace {

// Checks that `worker` can answer.
ShardCheck CheckBy(const WorkerId& worker, const Incarnation& incarnation,
                   const ShardCheck& about) {
  ShardCheck check = about;
  check.worker = worker;
  check.incarnation = incarnation;
  return check;
}

}  // namespace

std::vector<ShardCheck> ChecksOf(const v1::CheckpointManifest& manifest, const ShardCheck& about,
                                 const ConnectedWorkers& connected) {
  std::vector<ShardCheck> checks;
  ShardCheck copies = about;
  for (const v1::CheckpointFile& file : manifest.files()) {
    if (IsCopied(file)) copies.files.push_back(file);
  }
  if (!copies.files.empty()) checks.push_back(std::move(copies));
  std::map<std::string, ShardCheck> in_folders;
  for (const v1::CheckpointFile& file : manifest.files()) {
    for (const v1::ShardHolder& holder : file.holders()) {
      if (!IsFolder(holder.worker_id())) continue;
      ShardCheck& check = in_folders.try_emplace(holder.worker_id(), about).first->second;
      check.folder = FolderOf(holder);
      check.files.push_back(file);
    }
  }
  for (auto& [folder, check] : in_folders) checks.push_back(std::move(check));
  for (const std::string& holder : HoldersOf(manifest)) {
    const std::optional<Incarnation> incarnation = connected(WorkerId(holder));
    if (!incarnation) continue;
    ShardCheck own = CheckBy(WorkerId(holder), *incarnation, about);
    for (const v1::CheckpointFile& file : manifest.files()) {
      if (FindHolder(file, holder) != nullptr) own.files.push_back(file);
    }
    checks.push_back(std::move(own));
  }
  return checks;
}

std::vector<ShardCheck> CopyChecksOf(std::span<const v1::CheckpointFile> files,
                                     const ShardCheck& about, const ConnectedWorkers& connected) {
  std::map<std::string, std::vector<v1::CheckpointFile>> by_holder;
  for (const v1::CheckpointFile& file : files) {
    for (const v1::ShardHolder& holder : file.holders()) {
      if (!holder.problem().empty() || !connected(WorkerId(holder.worker_id()))) continue;
      by_holder[holder.worker_id()].push_back(file);
      break;
    }
  }
  std::vector<ShardCheck> checks;
  for (auto& [holder, held] : by_holder) {
    ShardCheck check = CheckBy(WorkerId(holder), *connected(WorkerId(holder)), about);
    check.files = std::move(held);
    check.copy = true;
    checks.push_back(std::move(check));
  }
  return checks;
}

// ---- Checks under way --------------------------------------------------------------

uint64_t ShardBook::Begin(ShardCheck check, MonoTime now) {
  check.until = now + check.limit;
  checks_[next_check_] = std::move(check);
  return next_check_++;
}

const ShardCheck* ShardBook::Find(uint64_t id) const {
  const auto found = checks_.find(id);
  return found == checks_.end() ? nullptr : &found->second;
}

std::optional<ShardCheck> ShardBook::TakeAnswered(const WorkerId& worker,
                                                  const Incarnation& incarnation,
                                                  const v1::WorkerMessage& message) {
  const uint64_t id = message.shards_checked().check();
  const ShardCheck* check = Find(id);
  if (check == nullptr || check->worker != worker || check->incarnation != incarnation ||
      message.run_id() != check->run.value() || message.epoch() != check->epoch.value()) {
    return std::nullopt;
  }
  return Take(id);
}

std::optional<ShardCheck> ShardBook::TakeAnsweredByCopies(uint64_t id) {
  const ShardCheck* check = Find(id);
  if (check == nullptr || check->worker) return std::nullopt;
  return Take(id);
}

std::optional<ShardCheck> ShardBook::Take(uint64_t id) {
  auto node = checks_.extract(id);
  if (node.empty()) return std::nullopt;
  return std::move(node.mapped());
}

void ShardBook::DropResumeChecks(const RunId& run) {
  std::erase_if(checks_, [&](const auto& entry) {
    return entry.second.run == run && entry.second.purpose == ShardCheck::Purpose::kResume;
  });
}

std::vector<uint64_t> ShardBook::Late(MonoTime now) const {
  std::vector<uint64_t> late;
  for (const auto& [id, check] : checks_) {
    if (now >= check.until) late.push_back(id);
  }
  return late;
}

std::vector<uint64_t> ShardBook::AskedOf(const WorkerId& worker) const {
  std::vector<uint64_t> asked;
  for (const auto& [id, check] : checks_) {
    if (check.worker == worker || check.to == worker) asked.push_back(id);
  }
  return asked;
}

bool ShardBook::IsUnderWay(const RunId& run, std::optional<uint64_t> step,
                           ShardCheck::Purpose purpose) const {
  return std::ranges::any_of(checks_, [&](const auto& entry) {
    return entry.second.run == run && entry.second.purpose == purpose &&
           (!step || entry.second.step == *step);
  });
}

bool ShardBook::IsInUse(const RunId& run) const {
  return std::ranges::any_of(checks_, [&](const auto& entry) { return entry.second.run == run; });
}

std::vector<std::pair<RunId, Epoch>> ShardBook::Transfers() const {
  std::vector<std::pair<RunId, Epoch>> transfers;
  for (const auto& [id, check] : checks_) {
    if (check.to) transfers.emplace_back(check.run, check.epoch);
  }
  return transfers;
}

std::vector<std::string> ShardBook::ExpectedCopies() const {
  std::vector<std::string> expected;
  for (const auto& [id, check] : checks_) {
    if (!check.copy || check.to || check.folder) continue;
    for (const v1::CheckpointFile& file : check.files) expected.push_back(file.sha256());
  }
  return expected;
}

std::vector<const ShardCheck*> ShardBook::ExpectingCopy(const std::string& sha256,
                                                        const std::optional<WorkerId>& from) const {
  std::vector<const ShardCheck*> expecting;
  for (const auto& [id, check] : checks_) {
    if (!check.copy || check.to || check.folder || (from && check.worker != from)) continue;
    if (std::ranges::any_of(check.files, [&](const auto& file) { return file.sha256() == sha256; }))
      expecting.push_back(&check);
  }
  return expecting;
}

bool ShardBook::ExpectsCopy(const std::string& sha256, uint64_t bytes,
                            const std::optional<WorkerId>& from) const {
  return std::ranges::any_of(ExpectingCopy(sha256, from), [&](const ShardCheck* check) {
    return std::ranges::any_of(check->files, [&](const v1::CheckpointFile& file) {
      return file.sha256() == sha256 && file.bytes() == bytes;
    });
  });
}

bool ShardBook::MovesObject(const RunId& run, const std::string& address, bool writes,
                            const std::optional<WorkerId>& from) const {
  return std::ranges::any_of(checks_, [&](const auto& entry) {
    const ShardCheck& check = entry.second;
    if (!check.folder || !(writes ? check.copy : check.takes) || check.run != run ||
        (from && check.worker != from)) {
      return false;
    }
    return std::ranges::any_of(check.files, [&](const v1::CheckpointFile& file) {
      return stored::IsObjectOf(address, file, *check.folder);
    });
  });
}

MonoTime ShardBook::NextWake() const {
  MonoTime wake = MonoTime::max();
  for (const auto& [id, check] : checks_) wake = std::min(wake, check.until);
  return wake;
}

// ---- Verification ------------------------------------------------------------------

void ShardBook::BeginVerification(RequestId request) {
  verifications_.try_emplace(request);
}

void ShardBook::NoteVerified(const ShardCheck& check, const v1::CheckpointFile& file) {
  const auto found = verifications_.find(check.request);
  if (check.purpose != ShardCheck::Purpose::kVerify || found == verifications_.end()) return;
  const std::string holder = check.worker   ? check.worker->value()
                             : check.folder ? check.folder->address()
                                            : "";
  found->second.insert({check.step, holder, file.name()});
}

std::optional<VerifiedShards> ShardBook::TakeVerified(RequestId request) {
  const bool more = std::ranges::any_of(checks_, [&](const auto& entry) {
    return entry.second.purpose == ShardCheck::Purpose::kVerify && entry.second.request == request;
  });
  if (more) return std::nullopt;
  auto node = verifications_.extract(request);
  if (node.empty()) return std::nullopt;
  return std::move(node.mapped());
}

}  // namespace longhaul::coordinator
