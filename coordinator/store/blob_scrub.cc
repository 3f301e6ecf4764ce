#include "coordinator/store/blob_scrub.h"

#include <string>
#include <string_view>
#include <utility>

#include "base/hash.h"
#include "base/log.h"

namespace longhaul::coordinator {

BlobScrub::BlobScrub(std::vector<const BlobStore*> stores, Pace pace)
    : stores_(std::move(stores)), pace_(pace), thread_([this] { Run(); }) {}

BlobScrub::~BlobScrub() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

bool BlobScrub::Sleep(absl::Duration duration) {
  std::unique_lock lock(mutex_);
  return !changed_.wait_until(lock, Deadline::After(duration).time().ToChrono(),
                              [this] { return closing_; });
}

void BlobScrub::Run() {
  for (bool goes_on = Sleep(pace_.first); goes_on; goes_on = Sleep(pace_.pause)) {
    for (const BlobStore* const store : stores_) Round(*store);
  }
}

void BlobScrub::Round(const BlobStore& store) {
  const StatusOr<std::vector<BlobStore::Entry>> blobs = store.List();
  if (!blobs.ok()) {
    LogWarning("blobs are not looked through: {}", Message(blobs.status()));
    return;
  }
  for (const BlobStore::Entry& blob : *blobs) {
    if (!Sleep(absl::ZeroDuration())) return;
    const Status status = Look(store, blob.sha256);
    // It may have been removed since.
    if (!status.ok() && !absl::IsNotFound(status)) {
      LogError("blob {}: {}", blob.sha256, Message(status));
    }
  }
}

Status BlobScrub::Look(const BlobStore& store, const std::string& sha256) {
  LH_ASSIGN_OR_RETURN(const BlobReader reader, store.OpenBlob(sha256));
  Sha256 hash;
  bool goes_on = true;
  LH_RETURN_IF_ERROR(reader.LookThrough(/*overlap=*/0, [&](std::string_view piece) {
    hash.Update(piece);
    goes_on = Sleep(absl::Seconds(static_cast<double>(piece.size()) / pace_.bytes_per_second));
    return goes_on;
  }));
  if (!goes_on || hash.HexDigest() == sha256) return absl::OkStatus();
  return store.Check(sha256);
}

}  // namespace longhaul::coordinator
