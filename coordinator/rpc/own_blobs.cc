#include "coordinator/rpc/own_blobs.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "base/log.h"
#include "base/units.h"
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
  return [this, member, named,
          listed = lists_->NamedByAny(named->lists)](const std::string& sha256) {
    return recent_.Has(member, sha256, Now()) || named->blobs.contains(sha256) || listed(sha256);
  };
}

Status OwnBlobs::MayName(const Caller& caller, const RunSpec& spec) const {
  if (MayAll(caller)) return absl::OkStatus();
  const std::string& member = caller.member->name;
  std::set<std::string> lists =
      shell_->Read([&](const Views& views) { return views.NamesOfOwner(member); }).all_lists;
  const size_t had = lists.size();
  for (const std::string& list : {spec.weights.sha256, spec.data.list_sha256}) {
    if (!list.empty()) lists.insert(list);
  }
  if (lists.size() == had || lists.size() <= limits_.lists) return absl::OkStatus();
  return ResourceExhausted(
      "the runs of {} name {} different lists of data sets and weights, and a member may have {}; "
      "remove runs that nobody needs: longhaul rm RUN",
      member, had, limits_.lists);
}

uint64_t OwnBlobs::BytesAllowed() const {
  return limits_.blob_bytes > 0 ? limits_.blob_bytes : room_->capacity() / kDiskPartsOfMember;
}

StatusOr<std::shared_ptr<const void>> OwnBlobs::Promise(const Caller& caller,
                                                        const std::string& sha256, uint64_t bytes) {
  if (MayAll(caller)) return nullptr;
  const std::string member = caller.member->name;
  LH_ASSIGN_OR_RETURN(const bool counted, index_->HasSent(member, sha256));
  if (counted) return nullptr;
  const uint64_t counts = std::max(bytes, kLeastBlobBytes), allowed = BytesAllowed();
  const std::lock_guard lock(promised_->mutex);
  // Under the lock: an upload is a promise until the index has it.
  LH_ASSIGN_OR_RETURN(const uint64_t sent, index_->BytesOf(member));
  uint64_t& promised = promised_->of[member];
  const uint64_t has = sent + promised;
  if (allowed > 0 && (counts > allowed || has > allowed - counts)) {
    if (promised == 0) promised_->of.erase(member);
    return ResourceExhausted(
        "blob {}: {} has sent {} that are kept here, this one has {}, and a member may have {} "
        "(--user-bytes of the coordinator). Remove runs that nobody needs (`longhaul rm RUN`), and "
        "have an admin delete what no run names (`longhaul gc`)",
        sha256, member, FormatBytes(has), FormatBytes(bytes), FormatBytes(allowed));
  }
  promised += counts;
  return std::shared_ptr<const void>(nullptr, [all = promised_, member, counts](const void*) {
    const std::lock_guard release(all->mutex);
    const auto own = all->of.find(member);
    if (own == all->of.end()) return;
    own->second -= counts;
    if (own->second == 0) all->of.erase(own);
  });
}

void OwnBlobs::Uploaded(const Caller& caller, const std::string& sha256, uint64_t bytes) {
  if (MayAll(caller)) return;
  recent_.Add(caller.member->name, sha256, Now());
  const Status noted =
      index_->NoteSent(caller.member->name, sha256, std::max(bytes, kLeastBlobBytes));
  if (!noted.ok()) LogWarning("the index of blobs: {}", Message(noted));
}

void OwnBlobs::Claimed(const Caller& caller, const std::string& sha256) {
  if (!MayAll(caller)) recent_.Refresh(caller.member->name, sha256, Now());
}

}  // namespace longhaul::coordinator
