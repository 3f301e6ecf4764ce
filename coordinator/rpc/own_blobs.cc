#include "coordinator/rpc/own_blobs.h"

#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "coordinator/rpc/rights.h"
#include "coordinator/store/garbage.h"

namespace longhaul::coordinator {

void RecentUploads::OfMember::ForgetOldest() {
  by_hash.erase(uploads.front().sha256);
  uploads.pop_front();
}

void RecentUploads::ForgetLocked(MonoTime now) {
  for (auto entry = members_.begin(); entry != members_.end();) {
    OfMember& own = entry->second;
    while (!own.uploads.empty() && own.uploads.front().time + kGarbageAge <= now) {
      own.ForgetOldest();
    }
    entry = own.uploads.empty() ? members_.erase(entry) : std::next(entry);
  }
}

void RecentUploads::Add(const std::string& member, const std::string& sha256, MonoTime now) {
  const std::lock_guard lock(mutex_);
  ForgetLocked(now);
  OfMember& own = members_[member];
  if (const auto known = own.by_hash.find(sha256); known != own.by_hash.end()) {
    known->second->time = now;
    own.uploads.splice(own.uploads.end(), own.uploads, known->second);
    return;
  }
  own.uploads.push_back({sha256, now});
  own.by_hash.emplace(own.uploads.back().sha256, std::prev(own.uploads.end()));
  if (own.uploads.size() > most_) own.ForgetOldest();
}

bool RecentUploads::Has(const std::string& member, const std::string& sha256, MonoTime now) const {
  const std::lock_guard lock(mutex_);
  const auto own = members_.find(member);
  if (own == members_.end()) return false;
  const auto known = own->second.by_hash.find(sha256);
  return known != own->second.by_hash.end() && now < known->second->time + kGarbageAge;
}

void RecentUploads::Refresh(const std::string& member, const std::string& sha256, MonoTime now) {
  if (Has(member, sha256, now)) Add(member, sha256, now);
}

OwnBlobs::Test OwnBlobs::Of(const Caller& caller) const {
  if (MayAll(caller)) return [](const std::string&) { return true; };
  const std::string& member = caller.member->name;
  // Shared: the test is copied, and what runs name may be much.
  const auto named = std::make_shared<const OwnNames>(
      shell_->Read([&](const Views& views) { return views.NamesOfOwner(member); }));
  std::vector<std::shared_ptr<const BlobLists::Names>> listed;
  for (const std::string& list : named->lists) {
    // A list that is gone, or none, names nothing.
    if (auto names = lists_->NamedBy(list); names.ok()) listed.push_back(*std::move(names));
  }
  return [this, member, named, listed = std::move(listed)](const std::string& sha256) {
    if (recent_.Has(member, sha256, Now()) || named->blobs.contains(sha256)) return true;
    for (const auto& names : listed) {
      if (names->contains(sha256)) return true;
    }
    return false;
  };
}

void OwnBlobs::Uploaded(const Caller& caller, const std::string& sha256) {
  if (!MayAll(caller)) recent_.Add(caller.member->name, sha256, Now());
}

void OwnBlobs::Claimed(const Caller& caller, const std::string& sha256) {
  if (!MayAll(caller)) recent_.Refresh(caller.member->name, sha256, Now());
}

}  // namespace longhaul::coordinator
