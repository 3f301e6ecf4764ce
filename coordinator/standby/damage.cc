// How a follower finds damage of its copy before it is needed, and repairs it (follower.h).
#include <utility>
#include <vector>

#include "base/log.h"
#include "coordinator/standby/follower.h"

namespace longhaul::coordinator {

// Has blobs that turn out to be damaged here fetched again.
class Follower::Refetched : public BlobFollower {
 public:
  Refetched(v1::BlobFolder folder, BlobPuller* puller) : folder_(folder), puller_(puller) {}
  void Added(const std::string& /*sha256*/, uint64_t /*bytes*/) override {}
  void Removed(const std::string& /*sha256*/) override {}
  // Without a leader this does nothing: each stream begins with the list of all blobs.
  void Damaged(const std::string& sha256) override {
    LogWarning("blob {} is damaged here, and is fetched again", sha256);
    puller_->Add({.folder = folder_, .sha256 = sha256}, /*bytes=*/0);
  }

 private:
  const v1::BlobFolder folder_;
  BlobPuller* const puller_;
};

void Follower::LookForDamage() {
  std::vector<const BlobStore*> stores;
  for (const v1::BlobFolder folder : {v1::BLOB_FOLDER_DATA, v1::BLOB_FOLDER_COPIES}) {
    refetched_[folder] = std::make_shared<Refetched>(folder, blobs_.get());
    copy_.blobs(folder).SetFollower(refetched_[folder]);
    stores.push_back(&copy_.blobs(folder));
  }
  scrub_.emplace(std::move(stores), options_.scrub);
  const auto damaged = [this](const Status& /*why*/) {
    const std::lock_guard lock(mutex_);
    if (!has_store_) return;  // it is being replaced
    distrusts_ = true;
    if (context_ != nullptr) context_->TryCancel();
  };
  store_check_.emplace(options_.state_dir + "/store.db", options_.store_check, damaged,
                       &copy_.replacing());
}

void Follower::ForgetDamaged() {
  {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(distrusts_, false)) return;
  }
  LogWarning("the leader's whole store is copied, because this copy is damaged");
  copy_.Distrust();
  NoteStore(nullptr);
}

}  // namespace longhaul::coordinator
