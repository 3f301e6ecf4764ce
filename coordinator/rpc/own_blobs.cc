#include "coordinator/rpc/own_blobs.h"

#include <memory>
#include <utility>
#include <vector>

#include "coordinator/rpc/rights.h"
#include "coordinator/store/garbage.h"

namespace longhaul::coordinator {

void RecentUploads::Add(const std::string& member, const std::string& sha256, MonoTime now) {
  const std::lock_guard lock(mutex_);
  const Key key(sha256, member);
  times_[key] = now;
  order_.emplace_back(key, now);
  while (!order_.empty() && (order_.size() > most_ || order_.front().second + kGarbageAge <= now)) {
    const auto& [oldest, when] = order_.front();
    if (const auto found = times_.find(oldest); found != times_.end() && found->second == when) {
      times_.erase(found);
    }
    order_.pop_front();
  }
}

bool RecentUploads::Has(const std::string& member, const std::string& sha256, MonoTime now) const {
  const std::lock_guard lock(mutex_);
  const auto found = times_.find(Key(sha256, member));
  return found != times_.end() && now < found->second + kGarbageAge;
}

OwnBlobs::Test OwnBlobs::Of(const Caller& caller) const {
  if (MayAll(caller)) return [](const std::string&) { return true; };
  const std::string& member = caller.member->name;
  // Shared: the test is copied, and what runs name may be much.
  const auto named = std::make_shared<const OwnNames>(shell_->NamesOfOwner(member));
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

}  // namespace longhaul::coordinator
