// Caches chunks of data sets in memory: the ones read last, and the ones expected next, which it
// fetches ahead. Memory stays below a limit, except for a single chunk that is larger.
//
//   ChunkCache cache(limit_bytes, fetch);
//   cache.Expect({...});                       // returns at once
//   LH_ASSIGN_OR_RETURN(SharedChunk chunk, cache.Get(id));
//
// Thread-safe.
#pragma once

#include <compare>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "base/status.h"
#include "worker/data/window_source.h"

namespace longhaul::worker {

struct ChunkId {
  uint32_t source = 0;  // index in the mixture
  Text text = Text::kTraining;
  uint32_t shard = 0;
  bool mask = false;
  uint64_t chunk = 0;
  friend auto operator<=>(const ChunkId&, const ChunkId&) = default;
};

using SharedChunk = std::shared_ptr<const std::vector<std::byte>>;

class ChunkCache {
 public:
  // Fetches a chunk. Blocks; returns soon after `given_up` is true. Called on several threads.
  using Fetch = std::function<StatusOr<std::vector<std::byte>>(
      const ChunkId& id, const std::function<bool()>& given_up)>;
  ChunkCache(uint64_t limit_bytes, Fetch fetch);
  ~ChunkCache();
  ChunkCache(const ChunkCache&) = delete;
  ChunkCache& operator=(const ChunkCache&) = delete;

  // Gives the chunk and fetches it first if needed. Errors are Fetch's; a later call tries again.
  // kCancelled: `given_up`, which is polled, became true; null: never.
  StatusOr<SharedChunk> Get(const ChunkId& id, const std::function<bool()>& given_up = nullptr);
  // Null: not in the cache.
  SharedChunk Find(const ChunkId& id) const;
  // Replaces the list of chunks that Get will be asked for next, in order. Fetches as many as fit.
  void Expect(const std::vector<ChunkId>& ids);

  uint64_t bytes() const;

 private:
  struct Entry {
    SharedChunk chunk;  // null: it is being fetched
    uint64_t last_used = 0;
  };
  void FetchAhead();
  // Returns the next expected chunk that is missing and fits. The caller holds the lock.
  bool TakeNext(ChunkId* id);
  void MakeRoom(uint64_t bytes);  // the caller holds the lock
  // Stores and returns the chunk. Other threads may evict it at once.
  StatusOr<SharedChunk> Store(const ChunkId& id, StatusOr<std::vector<std::byte>> bytes);

  const uint64_t limit_bytes_;
  const Fetch fetch_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<ChunkId, Entry> entries_;
  std::deque<ChunkId> expected_;
  uint64_t bytes_ = 0;    // total size of cached chunks
  uint64_t largest_ = 0;  // largest chunk so far: the room to reserve for another
  uint64_t uses_ = 0;
  bool closing_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace longhaul::worker
