#include "tests/sim/coordinator/disk.h"

#include <algorithm>
#include <iterator>

namespace longhaul::coordinator::sim {

void Disk::Write(const ShardName& name, const std::string& sha256) {
  files_[name].sha256 = sha256;
  harmed_.erase(name);
}

void Disk::Sync(const ShardName& name) {
  const auto file = files_.find(name);
  if (file != files_.end()) file->second.synced = file->second.sha256;
}

void Disk::Erase(const std::string& run, uint64_t step) {
  std::erase_if(files_,
                [&](const auto& file) { return file.first.run == run && file.first.step == step; });
}

void Disk::EraseOthers(const std::string& run, const std::set<uint64_t>& kept) {
  if (kept.empty()) return;
  std::erase_if(files_, [&](const auto& file) {
    const ShardName& name = file.first;
    return name.run == run && name.step < *kept.rbegin() && !kept.contains(name.step);
  });
}

std::optional<std::string> Disk::Find(const ShardName& name) const {
  const auto file = files_.find(name);
  if (file == files_.end()) return std::nullopt;
  return file->second.sha256;
}

bool Disk::HasHarmed(const std::string& run) const {
  return gone_ || std::ranges::any_of(harmed_, [&](const auto& name) { return name.run == run; });
}

void Disk::LosePower() {
  for (auto file = files_.begin(); file != files_.end();) {
    if (!file->second.synced) {
      file = files_.erase(file);
    } else {
      file->second.sha256 = *file->second.synced;
      ++file;
    }
  }
}

void Disk::LoseAll() {
  files_.clear();
  gone_ = true;
}

std::optional<ShardName> Disk::Rot(Random& random) {
  if (files_.empty()) return std::nullopt;
  // The newest is what matters most.
  auto file = std::prev(files_.end());
  if (random.Chance(0.5)) {
    file = std::next(files_.begin(), static_cast<std::ptrdiff_t>(random.Below(files_.size())));
  }
  file->second.sha256 = "rotten";
  file->second.synced = "rotten";
  harmed_.insert(file->first);
  return file->first;
}

}  // namespace longhaul::coordinator::sim
