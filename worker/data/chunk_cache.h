// Caches chunks of data sets in memory. A chunk is a part of a data set's file, the unit in which
// data are fetched and hashed. The cache keeps the most recently used chunks, and fetches expected
// chunks in advance. The total size of cached chunks has a limit; a chunk larger than this limit is
// cached alone.
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
  uint32_t source = 0;  // index of the data set in the mixture
  Text text = Text::kTraining;
  uint32_t shard = 0;
  bool mask = false;   // true: a chunk of the shard's loss mask; false: of its token ids
  uint64_t chunk = 0;  // index in that file
  friend auto operator<=>(const ChunkId&, const ChunkId&) = default;
};

using SharedChunk = std::shared_ptr<const std::vector<std::byte>>;

class ChunkCache {
 public:
  // Fetches a chunk and returns its bytes; blocks meanwhile. Must poll `given_up`, which is never
  // null, and return soon after `given_up` returns true. Several threads call Fetch at once.
  using Fetch = std::function<StatusOr<std::vector<std::byte>>(
      const ChunkId& id, const std::function<bool()>& given_up)>;
  // Starts two threads, which fetch expected chunks.
  ChunkCache(uint64_t limit_bytes, Fetch fetch);
  // Gives up the fetches in advance, and waits for them. No other call may be in progress.
  ~ChunkCache();
  ChunkCache(const ChunkCache&) = delete;
  ChunkCache& operator=(const ChunkCache&) = delete;

  // Returns the chunk. If the chunk is not in the cache, fetches it on the calling thread, or waits
  // for a fetch in progress. Errors: those of Fetch; the next call tries again. Polls `given_up`;
  // null: never gives up. kCancelled: `given_up` became true during the wait.
  StatusOr<SharedChunk> Get(const ChunkId& id, const std::function<bool()>& given_up = nullptr);
  // Returns the chunk if it is in the cache, else null. Does not wait for a fetch in progress.
  SharedChunk Find(const ChunkId& id) const;
  // Replaces the list of chunks that will be needed next, in order of need. Returns at once; the
  // cache's threads fetch as many of these chunks as fit. A chunk in the list may repeat.
  void Expect(const std::vector<ChunkId>& ids);

  // Total size of the cached chunks.
  uint64_t bytes() const;

 private:
  struct Entry {
    SharedChunk chunk;  // null: it is being fetched
    uint64_t last_used = 0;
  };
  void FetchAhead();
  // Gives the next expected chunk that is missing and fits. False: there is none. The caller holds
  // mutex_.
  bool TakeNext(ChunkId* id);
  void MakeRoom(uint64_t bytes);  // the caller holds mutex_
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
