#include "coordinator/state/books/reach_checks.h"

#include <utility>

#include "base/check.h"

namespace longhaul::coordinator {

uint64_t ReachChecks::Begin(ReachCheck check) {
  const uint64_t id = next_++;
  ids_[ByDialled(check.key)] = id;
  by_dialler_.insert({check.key.from, id});
  checks_[id] = std::move(check);
  return id;
}

const ReachCheck* ReachChecks::Find(uint64_t id) const {
  const auto found = checks_.find(id);
  return found == checks_.end() ? nullptr : &found->second;
}

void ReachChecks::End(uint64_t id) {
  const auto found = checks_.find(id);
  if (found == checks_.end()) return;
  const ReachKey& key = found->second.key;
  ended_.insert({key.to, key.transport});
  ids_.erase(ByDialled(key));
  by_dialler_.erase({key.from, id});
  checks_.erase(found);
}

void ReachChecks::EndLate(MonoTime now) {
  while (!checks_.empty() && now >= checks_.begin()->second.until) End(checks_.begin()->first);
}

void ReachChecks::EndOf(const WorkerId& worker) {
  std::vector<uint64_t> ids;
  for (auto it = ids_.lower_bound({worker, "", WorkerId()});
       it != ids_.end() && it->first.to == worker; ++it) {
    ids.push_back(it->second);
  }
  for (auto it = by_dialler_.lower_bound({worker, 0});
       it != by_dialler_.end() && it->first == worker; ++it) {
    ids.push_back(it->second);
  }
  for (const uint64_t id : ids) End(id);
}

std::vector<std::pair<WorkerId, std::string>> ReachChecks::TakeEnded() {
  std::vector<std::pair<WorkerId, std::string>> ended;
  for (const auto& [to, transport] : std::exchange(ended_, {})) {
    const auto more = ids_.lower_bound({to, transport, WorkerId()});
    const bool is_last =
        more == ids_.end() || more->first.to != to || more->first.transport != transport;
    if (is_last) ended.emplace_back(to, transport);
  }
  return ended;
}

MonoTime ReachChecks::NextWake() const {
  return checks_.empty() ? MonoTime::max() : checks_.begin()->second.until;
}

void ReachChecks::CheckInvariants() const {
  LH_CHECK(checks_.size() == ids_.size() && checks_.size() == by_dialler_.size(),
           "{} checks of reach are under way, {} and {} are listed", checks_.size(), ids_.size(),
           by_dialler_.size());
}

}  // namespace longhaul::coordinator
