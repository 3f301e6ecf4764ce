#include "coordinator/standby/blob_puller.h"

#include <algorithm>

#include "base/log.h"
#include "proto/rpc/status.h"

namespace longhaul::coordinator {

// ---- The list ----------------------------------------------------------------------

void PullList::Add(ListedBlob blob, uint64_t bytes) {
  const auto [entry, added] =
      blobs_.try_emplace(std::move(blob), Entry{.bytes = bytes, .pause = {}});
  if (!added) return;
  bytes_ += bytes;
  ready_.emplace(bytes, entry->first);
}

void PullList::Remove(const ListedBlob& blob) {
  const auto found = blobs_.find(blob);
  if (found == blobs_.end()) return;
  bytes_ -= found->second.bytes;
  ready_.erase({found->second.bytes, blob});
  waiting_.erase({found->second.not_before, blob});
  blobs_.erase(found);
}

std::optional<ListedBlob> PullList::Next(MonoTime now) {
  while (!waiting_.empty() && waiting_.begin()->first <= now) {
    ListedBlob blob = waiting_.begin()->second;
    waiting_.erase(waiting_.begin());
    const uint64_t bytes = blobs_.at(blob).bytes;
    ready_.emplace(bytes, std::move(blob));
  }
  if (ready_.empty()) return std::nullopt;
  ListedBlob blob = ready_.begin()->second;
  ready_.erase(ready_.begin());
  blobs_.at(blob).under_way = true;
  return blob;
}

void PullList::Failed(const ListedBlob& blob, MonoTime now) {
  const auto found = blobs_.find(blob);
  if (found == blobs_.end() || !std::exchange(found->second.under_way, false)) return;
  Entry& entry = found->second;
  entry.pause = std::clamp(entry.pause * 2, kShortestPause, kLongestPause);
  entry.not_before = now + entry.pause;
  waiting_.emplace(entry.not_before, blob);
}

MonoTime PullList::NextTry() const {
  return waiting_.empty() ? MonoTime::max() : waiting_.begin()->first;
}

// ---- Fetching ----------------------------------------------------------------------

BlobPuller::BlobPuller(Store store, Has has, Damaged damaged)
    : store_(std::move(store)), has_(std::move(has)), damaged_(std::move(damaged)) {
  for (size_t i = 0; i < kAtOnce; ++i) threads_.emplace_back([this] { Run(); });
}

BlobPuller::~BlobPuller() {
  End();
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void BlobPuller::Begin(std::shared_ptr<v1::StandbyService::Stub> stub) {
  End();
  {
    const std::lock_guard lock(mutex_);
    stub_ = std::move(stub);
  }
  changed_.notify_all();
}

void BlobPuller::End() {
  const std::lock_guard lock(mutex_);
  list_ = {};
  stub_.reset();
  ++stream_;
  for (grpc::ClientContext* const context : under_way_) context->TryCancel();
}

void BlobPuller::Add(const ListedBlob& blob, uint64_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    list_.Add(blob, bytes);
  }
  changed_.notify_one();
}

void BlobPuller::Remove(const ListedBlob& blob) {
  const std::lock_guard lock(mutex_);
  list_.Remove(blob);
}

BlobPuller::Missing BlobPuller::missing() const {
  const std::lock_guard lock(mutex_);
  return {.blobs = list_.blobs(), .bytes = list_.bytes()};
}

void BlobPuller::Run() {
  std::unique_lock lock(mutex_);
  while (!closing_) {
    const std::optional<ListedBlob> blob = stub_ == nullptr ? std::nullopt : list_.Next(Now());
    if (!blob) {
      changed_.wait_until(lock, std::min(list_.NextTry(), Now() + absl::Hours(1)).ToChrono());
      continue;
    }
    const auto stub = stub_;
    const uint64_t stream = stream_;
    grpc::ClientContext context;
    under_way_.insert(&context);
    lock.unlock();
    const Status fetched = Fetch(*blob, stub.get(), &context);
    lock.lock();
    under_way_.erase(&context);
    if (stream != stream_) continue;
    if (fetched.ok()) {
      list_.Remove(*blob);
      lock.unlock();
      has_(*blob);
      lock.lock();
      continue;
    }
    list_.Failed(*blob, Now());
    lock.unlock();
    // Not found: it has just been removed there, or was damaged there and is given from here.
    if (!absl::IsNotFound(fetched)) {
      LogWarning("blob {} is not here yet, and is fetched again later: {}", blob->sha256,
                 Message(fetched));
    }
    if (absl::IsDataLoss(fetched) && damaged_) damaged_(*blob, fetched);
    lock.lock();
  }
}

Status BlobPuller::Fetch(const ListedBlob& blob, v1::StandbyService::Stub* stub,
                         grpc::ClientContext* context) {
  const BlobStore& blobs = store_(blob.folder);
  if (blobs.Has(blob.sha256)) return absl::OkStatus();
  v1::FetchBlobRequest request;
  request.set_sha256(blob.sha256);
  const auto reader = stub->FetchCopy(context, request);
  const Status taken = [&]() -> Status {
    std::unique_ptr<BlobUpload> upload;
    v1::BlobChunk chunk;
    while (reader->Read(&chunk)) {
      if (upload == nullptr) {
        LH_ASSIGN_OR_RETURN(upload, blobs.StartUpload(blob.sha256, chunk.total_bytes()));
      }
      LH_RETURN_IF_ERROR(upload->Append(chunk.data()));
    }
    if (upload == nullptr) return absl::UnavailableError("nothing of it came");
    return upload->Finish();
  }();
  if (!taken.ok()) context->TryCancel();
  const Status end = FromGrpc(reader->Finish());
  if (taken.ok()) return end;
  // What broke off says why; a call that was cancelled here does not.
  return end.ok() || absl::IsCancelled(end) ? taken : end;
}

}  // namespace longhaul::coordinator
