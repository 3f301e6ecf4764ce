// Chunks of data sets in memory: those that were read last, and those that are expected next, which
// are fetched ahead. They take no more than a limit, but for one that is larger.
//
//   ChunkCache cache(limit_bytes, fetch);
//   cache.Expect({...});                       // returns at once
//   LH_ASSIGN_OR_RETURN(SharedChunk chunk, cache.Get(id));
//
// Thread-safe.
#ifndef LONGHAUL_WORKER_DATA_CHUNK_CACHE_H_
#define LONGHAUL_WORKER_DATA_CHUNK_CACHE_H_

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
  uint32_t source = 0;  // of the mixture
  Text text = Text::kTraining;
  uint32_t shard = 0;
  bool mask = false;
  uint64_t chunk = 0;
  friend auto operator<=>(const ChunkId&, const ChunkId&) = default;
};

using SharedChunk = std::shared_ptr<const std::vector<std::byte>>;

class ChunkCache {
 public:
  // Blocks; ends soon after `given_up` says so. Called by several threads.
  using Fetch = std::function<StatusOr<std::vector<std::byte>>(
      const ChunkId& id, const std::function<bool()>& given_up)>;
  ChunkCache(uint64_t limit_bytes, Fetch fetch);
  ~ChunkCache();
  ChunkCache(const ChunkCache&) = delete;
  ChunkCache& operator=(const ChunkCache&) = delete;

  // The chunk, which may have to be fetched first: not OK as `fetch` says, and it may be asked for
  // again. kCancelled soon after `given_up`, which is asked now and then, says so; null: never.
  StatusOr<SharedChunk> Get(const ChunkId& id, const std::function<bool()>& given_up = nullptr);
  // Null: it is not there now.
  SharedChunk Find(const ChunkId& id) const;
  // What Get will be asked for next, in this order, instead of what was said before. As much of it
  // as there is room for is fetched.
  void Expect(const std::vector<ChunkId>& ids);

  uint64_t bytes() const;

 private:
  enum class State : uint8_t { kFetching, kThere };
  struct Entry {
    State state = State::kFetching;
    SharedChunk chunk;
    uint64_t last_used = 0;
  };
  void FetchAhead();
  // Of the expected ones the next that is not there, if there is room for it. Locked.
  bool TakeNext(ChunkId* id);
  void MakeRoom(uint64_t bytes);  // locked
  // Gives the chunk, which others may put out at once.
  StatusOr<SharedChunk> Store(const ChunkId& id, StatusOr<std::vector<std::byte>> bytes);

  const uint64_t limit_bytes_;
  const Fetch fetch_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<ChunkId, Entry> entries_;
  std::deque<ChunkId> expected_;
  uint64_t bytes_ = 0;    // of those that are there
  uint64_t largest_ = 0;  // of those that came: what another one may take
  uint64_t uses_ = 0;
  uint32_t fetching_ahead_ = 0;
  bool closing_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_DATA_CHUNK_CACHE_H_
