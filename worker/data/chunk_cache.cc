#include "worker/data/chunk_cache.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

namespace longhaul::worker {
namespace {

// Fetches on their way: the next one begins while one waits for a round trip.
constexpr int kThreads = 2;
// How often who may give up is asked.
constexpr std::chrono::milliseconds kLook{50};

Status NotWanted() {
  return absl::CancelledError("the data are not wanted any more");
}

}  // namespace

ChunkCache::ChunkCache(uint64_t limit_bytes, Fetch fetch)
    : limit_bytes_(limit_bytes), fetch_(std::move(fetch)) {
  for (int i = 0; i < kThreads; ++i) threads_.emplace_back([this] { FetchAhead(); });
}

ChunkCache::~ChunkCache() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    changed_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
}

uint64_t ChunkCache::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

StatusOr<SharedChunk> ChunkCache::Get(const ChunkId& id, const std::function<bool()>& given_up) {
  std::unique_lock lock(mutex_);
  while (true) {
    const auto it = entries_.find(id);
    if (it == entries_.end()) break;
    if (it->second.chunk) {
      it->second.last_used = ++uses_;
      return it->second.chunk;
    }
    if (!given_up) {
      changed_.wait(lock);
      continue;
    }
    changed_.wait_for(lock, kLook);
    lock.unlock();
    if (given_up()) return NotWanted();
    lock.lock();
  }
  if (closing_) return NotWanted();
  entries_[id] = {};
  lock.unlock();
  StatusOr<std::vector<std::byte>> bytes = fetch_(id, [&] {
    if (given_up && given_up()) return true;
    const std::lock_guard locked(mutex_);
    return closing_;
  });
  return Store(id, std::move(bytes));
}

SharedChunk ChunkCache::Find(const ChunkId& id) const {
  const std::lock_guard lock(mutex_);
  const auto it = entries_.find(id);
  return it == entries_.end() ? nullptr : it->second.chunk;
}

void ChunkCache::Expect(const std::vector<ChunkId>& ids) {
  const std::lock_guard lock(mutex_);
  expected_.clear();
  std::set<ChunkId> seen;
  for (const ChunkId& id : ids) {
    if (!seen.insert(id).second) continue;
    // It stays, whatever was used since.
    if (const auto it = entries_.find(id); it != entries_.end()) it->second.last_used = ++uses_;
    expected_.push_back(id);
  }
  changed_.notify_all();
}

bool ChunkCache::TakeNext(ChunkId* id) {
  // Skips expected chunks that are present or in flight, and counts them against the limit.
  uint64_t needed = 0;
  for (const ChunkId& next : expected_) {
    needed += std::max<uint64_t>(largest_, 1);
    if (needed > limit_bytes_ && needed > largest_) return false;
    if (entries_.contains(next)) continue;
    *id = next;
    return true;
  }
  return false;
}

void ChunkCache::FetchAhead() {
  std::unique_lock lock(mutex_);
  while (true) {
    ChunkId id;
    changed_.wait(lock, [&] { return closing_ || TakeNext(&id); });
    if (closing_) return;
    entries_[id] = {};
    lock.unlock();
    const StatusOr<SharedChunk> stored = Store(id, fetch_(id, [this] {
                                                 const std::lock_guard locked(mutex_);
                                                 return closing_;
                                               }));
    lock.lock();
    // Who needs it asks again, and is told why it does not come.
    if (!stored.ok()) std::erase(expected_, id);
  }
}

StatusOr<SharedChunk> ChunkCache::Store(const ChunkId& id, StatusOr<std::vector<std::byte>> bytes) {
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
  if (!bytes.ok()) {
    entries_.erase(id);
    return bytes.status();
  }
  largest_ = std::max<uint64_t>(largest_, bytes->size());
  MakeRoom(bytes->size());
  bytes_ += bytes->size();
  Entry& entry = entries_[id];
  entry.chunk = std::make_shared<const std::vector<std::byte>>(*std::move(bytes));
  entry.last_used = ++uses_;
  return entry.chunk;
}

void ChunkCache::MakeRoom(uint64_t bytes) {
  while (bytes_ > 0 && bytes_ + bytes > limit_bytes_) {
    auto oldest = entries_.end();
    for (auto it = entries_.begin(); it != entries_.end(); ++it) {
      if (!it->second.chunk) continue;
      if (oldest == entries_.end() || it->second.last_used < oldest->second.last_used) oldest = it;
    }
    if (oldest == entries_.end()) return;
    bytes_ -= oldest->second.chunk->size();
    entries_.erase(oldest);
  }
}

}  // namespace longhaul::worker
